// A parameter of a kilobyte, read by an index that only the run knows, and one after it.
// launch: large_parameter grid 1 block 32
// arg: out u32 64
// arg: struct u32 11, u32 22, u32 33, u32 44, u32 55, u32 66, u32 77, u32 88, u32 99, u32 110, u32 121, u32 132, u32 143, u32 154, u32 165, u32 176, u64 9000000000, u64 9000000001, u64 9000000002, u64 9000000003
// arg: value u32 12345

struct Large {
    unsigned words[16];
    unsigned long long wide[4];
};

extern "C" __global__ void large_parameter(unsigned *out, const __grid_constant__ Large large, unsigned last) {
    unsigned i = threadIdx.x;
    const Large *at = &large;
    out[i] = large.words[i % 16] + last;
    out[32 + i] = (unsigned)at->wide[(i * 3) % 4];
}
