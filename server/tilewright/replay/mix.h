// The digest's arithmetic, for the GPU and, in the tests, for a C compiler. The mixer is splitmix64's finalizer (G. Steele, D. Lea, C. Flood, "Fast Splittable Pseudorandom Number
// Generators", 2014).
#ifndef TILEWRIGHT_MIX_H
#define TILEWRIGHT_MIX_H

#ifdef __CUDACC__
#define TILEWRIGHT_BOTH __device__ __forceinline__
#else
#define TILEWRIGHT_BOTH static inline
#endif

TILEWRIGHT_BOTH uint64_t tilewright_mix(uint64_t x) {
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9ull;
    x ^= x >> 27;
    x *= 0x94D049BB133111EBull;
    return x ^ x >> 31;
}

// What the word at `place` adds to a digest under `key`.
TILEWRIGHT_BOTH uint64_t tilewright_term(uint64_t word, uint64_t key, uint64_t place) {
    return tilewright_mix(word ^ tilewright_mix(key + place));
}

#endif
