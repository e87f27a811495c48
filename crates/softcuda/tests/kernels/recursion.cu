// Functions that call themselves: factorial, Fibonacci's numbers and a small Ackermann.
// launch: recursion grid 1 block 12
// arg: out u64 36

__device__ __noinline__ unsigned long long factorial(unsigned n) { return n < 2 ? 1 : n * factorial(n - 1); }
__device__ __noinline__ unsigned fibonacci(unsigned n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
__device__ __noinline__ unsigned ackermann(unsigned m, unsigned n) {
    if (m == 0) return n + 1;
    if (n == 0) return ackermann(m - 1, 1);
    return ackermann(m - 1, ackermann(m, n - 1));
}

extern "C" __global__ void recursion(unsigned long long *out) {
    unsigned i = threadIdx.x;
    out[i] = factorial(i + 8);
    out[12 + i] = fibonacci(i);
    out[24 + i] = ackermann(i % 3, i / 3);
}
