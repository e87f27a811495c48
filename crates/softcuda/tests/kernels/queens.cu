// Ways to place queens on a board, by recursion, a first move a thread.
// compile: --device-debug
// launch: queens grid 1 block 7
// arg: inout u32 1 value 0
// arg: out u32 7

__device__ __noinline__ unsigned place(unsigned size, unsigned columns, unsigned left, unsigned right) {
    unsigned all = (1u << size) - 1;
    if (columns == all) return 1;
    unsigned ways = 0;
    for (unsigned free = all & ~(columns | left | right); free;) {
        unsigned bit = free & -free;
        free ^= bit;
        ways += place(size, columns | bit, (left | bit) << 1, (right | bit) >> 1);
    }
    return ways;
}

extern "C" __global__ void queens(unsigned *total, unsigned *out) {
    unsigned bit = 1u << threadIdx.x, ways = place(7, bit, bit << 1, bit >> 1);
    out[threadIdx.x] = ways;
    atomicAdd(total, ways);
}
