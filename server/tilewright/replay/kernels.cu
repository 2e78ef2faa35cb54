// The replayer's own kernels. kernels.ptx is made from this file: `make kernels`.

#include <stdint.h>

#include "mix.h"

// Reads `count` chunks of 16 bytes, so that nothing else is left in the L2. `sink` is there so that no read is left out.
extern "C" __global__ void read_all(const uint4 *chunks, uint64_t count, uint32_t *sink) {
    uint32_t seen = 0;
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < count; i += (uint64_t)gridDim.x * blockDim.x) {
        uint4 chunk = chunks[i];
        seen ^= chunk.x ^ chunk.y ^ chunk.z ^ chunk.w;
    }
    if (seen == 0x9E3779B9) *sink = seen;
}

// Adds the keyed digest of `count` words of 8 bytes to `sum`.
extern "C" __global__ void digest(const uint64_t *words, uint64_t count, uint64_t key, unsigned long long *sum) {
    uint64_t part = 0;
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < count; i += (uint64_t)gridDim.x * blockDim.x)
        part += tilewright_term(words[i], key, i);
    for (int distance = 16; distance; distance >>= 1) part += __shfl_xor_sync(~0u, part, distance);
    if (threadIdx.x % 32 == 0) atomicAdd(sum, part);
}

// Hands the sum to the host, which waits for a word that is not zero, and clears it.
extern "C" __global__ void publish(unsigned long long *sum, volatile uint64_t *host) {
    uint64_t found = *sum | 1;
    *sum = 0;
    __threadfence_system();
    *host = found;
    __threadfence_system();
}

struct area {
    uint64_t to, from, bytes;
};
struct batch {
    area areas[160];  // parameters may take 4 KB
};

// Copies bytes in many places at once. The driver copies each variable of an image on its own, which takes the host's
// time. The places are parameters: nobody else's kernel can change them.
extern "C" __global__ void copy_all(const __grid_constant__ batch batch, uint64_t count) {
    for (uint64_t one = blockIdx.x; one < count; one += gridDim.x) {
        const area area = batch.areas[one];
        for (uint64_t i = threadIdx.x; i < area.bytes; i += blockDim.x)
            ((uint8_t *)area.to)[i] = ((const uint8_t *)area.from)[i];
    }
}

// What an empty program launches.
extern "C" __global__ void nothing() {}

// Overwrites the shared memory of an SM, which a kernel would else find as the one before left it.
extern "C" __global__ void scrub(uint32_t words) {
    extern __shared__ uint32_t shared[];
    for (uint32_t i = threadIdx.x; i < words; i += blockDim.x) shared[i] = 0xFFFFFFFF;
}
