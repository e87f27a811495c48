// A table with open addressing: keys are put in by compare and swap, then looked up.
// launch: insert grid 2 block 64
// launch: lookup grid 2 block 64
// arg: inout u64 256 value 0xffffffffffffffff
// arg: out u32 128
// arg: in u32 128 random 43
// compare: 0 sorted

__device__ unsigned place(unsigned key) { return (key * 2654435769u) >> 24; }

extern "C" __global__ void insert(unsigned long long *table, unsigned *, const unsigned *keys) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, key = keys[i];
    unsigned long long entry = (unsigned long long)key << 32 | i;
    for (unsigned slot = place(key);; slot = (slot + 1) % 256)
        if (atomicCAS(&table[slot], ~0ull, entry) == ~0ull) break;
}

extern "C" __global__ void lookup(unsigned long long *table, unsigned *found, const unsigned *keys) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, key = keys[i];
    unsigned slot = place(key);
    while (table[slot] >> 32 != key) slot = (slot + 1) % 256;
    found[i] = (unsigned)table[slot];
}
