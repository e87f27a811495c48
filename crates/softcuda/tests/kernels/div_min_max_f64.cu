// Division of f64 in all roundings, smaller and larger, and the sign of one number on another.
// launch: div_min_max_f64 grid 4 block 100
// arg: out f64 2800
// arg: in f64 400 corners slow
// arg: in f64 400 corners
// compare: any-nan

#define OP(k, text)                                                   \
    {                                                                 \
        double d;                                                     \
        asm volatile(text " %0, %1, %2;" : "=d"(d) : "d"(x), "d"(y)); \
        out[(k) * 400 + i] = d;                                         \
    }

extern "C" __global__ void div_min_max_f64(double *out, const double *a, const double *b) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    double x = a[i], y = b[i];
    OP(0, "div.rn.f64")
    OP(1, "div.rz.f64")
    OP(2, "div.rm.f64")
    OP(3, "div.rp.f64")
    OP(4, "min.f64")
    OP(5, "max.f64")
    OP(6, "copysign.f64")
}
