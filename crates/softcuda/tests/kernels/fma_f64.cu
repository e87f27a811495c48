// fma of f64 in all roundings: the sum is exact before it is rounded.
// launch: fma_f64 grid 4 block 100
// arg: out f64 1600
// arg: in f64 400 corners slow
// arg: in f64 400 corners
// arg: in f64 400 corners random 23
// compare: any-nan

#define OP(k, text)                                                               \
    {                                                                             \
        double d;                                                                 \
        asm volatile(text " %0, %1, %2, %3;" : "=d"(d) : "d"(x), "d"(y), "d"(z)); \
        out[(k) * 400 + i] = d;                                                     \
    }

extern "C" __global__ void fma_f64(double *out, const double *a, const double *b, const double *c) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    double x = a[i], y = b[i], z = c[i];
    OP(0, "fma.rn.f64")
    OP(1, "fma.rz.f64")
    OP(2, "fma.rm.f64")
    OP(3, "fma.rp.f64")
}
