// Two functions that call each other, with lanes at different depths.
// launch: mutual_recursion grid 1 block 32
// arg: out u32 64

__device__ __noinline__ unsigned odd(unsigned n, unsigned *steps);
__device__ __noinline__ unsigned even(unsigned n, unsigned *steps) {
    ++*steps;
    return n == 0 ? 1 : odd(n - 1, steps);
}
__device__ __noinline__ unsigned odd(unsigned n, unsigned *steps) {
    *steps += 100;
    return n == 0 ? 0 : even(n - 1, steps);
}

extern "C" __global__ void mutual_recursion(unsigned *out) {
    unsigned i = threadIdx.x, steps = 0;
    out[i] = even(i, &steps);
    out[32 + i] = steps;
}
