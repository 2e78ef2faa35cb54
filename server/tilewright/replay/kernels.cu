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

static __device__ uint64_t nanoseconds() {
    uint64_t now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}

// Spins for `cycles`, and tells the host how many cycles and nanoseconds that took: the clock of an SM. It begins and
// ends with a tick of the GPU's timer, which may come once in a microsecond.
extern "C" __global__ void probe(uint64_t cycles, volatile uint64_t *host) {
    uint64_t before = nanoseconds(), began, ended;
    while ((began = nanoseconds()) == before);
    uint64_t first = clock64();
    while (clock64() - first < cycles);
    before = nanoseconds();
    while ((ended = nanoseconds()) == before);
    host[0] = clock64() - first;
    host[1] = ended - began;
    __threadfence_system();
}

// What an empty program launches.
extern "C" __global__ void nothing() {}

// Overwrites the shared memory of an SM, which a kernel would else find as the one before left it.
extern "C" __global__ void scrub(uint32_t words) {
    extern __shared__ uint32_t shared[];
    for (uint32_t i = threadIdx.x; i < words; i += blockDim.x) shared[i] = 0xFFFFFFFF;
}
