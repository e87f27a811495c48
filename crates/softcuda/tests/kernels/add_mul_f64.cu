// Addition and multiplication of f64 in all roundings.
// launch: add_mul_f64 grid 4 block 100
// arg: out f64 3200
// arg: in f64 400 corners slow
// arg: in f64 400 corners
// compare: any-nan

#define OP(k, text)                                                   \
    {                                                                 \
        double d;                                                     \
        asm volatile(text " %0, %1, %2;" : "=d"(d) : "d"(x), "d"(y)); \
        out[(k) * 400 + i] = d;                                         \
    }

extern "C" __global__ void add_mul_f64(double *out, const double *a, const double *b) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    double x = a[i], y = b[i];
    OP(0, "add.f64")
    OP(1, "add.rz.f64")
    OP(2, "sub.rm.f64")
    OP(3, "sub.rp.f64")
    OP(4, "mul.f64")
    OP(5, "mul.rz.f64")
    OP(6, "mul.rm.f64")
    OP(7, "mul.rp.f64")
}
