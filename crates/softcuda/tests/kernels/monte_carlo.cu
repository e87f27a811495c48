// Points in a circle, counted by warps: integers only, so that the count is exact.
// launch: monte_carlo grid 4 block 64
// arg: inout u32 1 value 0

extern "C" __global__ void monte_carlo(unsigned *inside) {
    unsigned long long state = blockIdx.x * 64 + threadIdx.x + 1;
    unsigned own = 0;
    for (int k = 0; k < 50; k++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        unsigned x = state & 0xffff, y = state >> 32 & 0xffff;
        own += (unsigned long long)x * x + (unsigned long long)y * y < 1ull << 32;
    }
    own = __reduce_add_sync(0xffffffff, own);
    if (threadIdx.x % 32 == 0) atomicAdd(inside, own);
}
