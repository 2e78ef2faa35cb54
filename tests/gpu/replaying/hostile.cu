// Device programs that cheat, for the tests. hostile.ptx is made from this file: `python -m tests.gpu.replaying.hostile`.

#include <stdint.h>

__device__ void work(const uint4 *x, uint4 *y, uint64_t chunks) {
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < chunks; i += (uint64_t)gridDim.x * blockDim.x) {
        uint4 v = x[i];
        y[i] = make_uint4(v.x * 2 + 1, v.y * 2 + 1, v.z * 2 + 1, v.w * 2 + 1);
    }
}

__device__ uint64_t now() {
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

__device__ void wait(uint32_t ns) {
    uint64_t until = now() + ns;
    while (now() < until) {}
}

// y = 2 x + 1 over words of 4 bytes, then `ns` more on every block.
extern "C" __global__ void honest(const uint4 *x, uint4 *y, uint64_t chunks, uint32_t ns) {
    work(x, y, chunks);
    if (ns) wait(ns);
}

// The same; then it moves every word in `slots` that looks like a time of the last millisecond by `later` ns: the driver
// keeps the stamps of events there, and that of the start is written already.
extern "C" __global__ void forges_stamps(const uint4 *x, uint4 *y, uint64_t chunks, uint32_t ns, volatile uint64_t *slots,
                                         uint64_t count, uint64_t later) {
    work(x, y, chunks);
    if (ns) wait(ns);
    if (blockIdx.x) return;
    uint64_t time = now();
    for (uint64_t i = threadIdx.x; i < count; i += blockDim.x) {
        uint64_t word = slots[i];
        if (word < time && time - word < 1000000) slots[i] = word + later;
    }
    __threadfence_system();
}

// The same as `honest`, and it asks for its input to stay in the L2: the next call would find it there.
extern "C" __global__ void marks(const uint4 *x, uint4 *y, uint64_t chunks, uint32_t ns) {
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < chunks; i += (uint64_t)gridDim.x * blockDim.x) {
        uint4 v;
        asm volatile("ld.global.L2::cache_hint.v4.u32 {%0,%1,%2,%3}, [%4], %5;"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(x + i), "l"(policy));
        y[i] = make_uint4(v.x * 2 + 1, v.y * 2 + 1, v.z * 2 + 1, v.w * 2 + 1);
    }
    if (ns) wait(ns);
}

// It finds what the other version left: it copies what lies in its output before the call.
extern "C" __global__ void leaves_it(const uint4 *x, uint4 *y, uint64_t chunks) {}

// It keeps its result in a global of its own module, and only copies it from the second call on.
__device__ uint4 kept[1 << 16];
__device__ uint8_t known[1 << 16];
extern "C" __global__ void remembers(const uint4 *x, uint4 *y, uint64_t chunks) {
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < chunks; i += (uint64_t)gridDim.x * blockDim.x) {
        if (!known[i]) {
            uint4 v = x[i];
            kept[i] = make_uint4(v.x * 2 + 1, v.y * 2 + 1, v.z * 2 + 1, v.w * 2 + 1);
            known[i] = 1;
        }
        y[i] = kept[i];
    }
}

// It never ends.
extern "C" __global__ void spins(const uint4 *x, uint4 *y, uint64_t chunks) {
    while (now()) {}
}
