// Instructions of one f64 operand whose bits are fixed.
// launch: unary_f64 grid 1 block 20
// arg: out f64 220
// arg: in f64 20 corners
// compare: any-nan

#define OP(k, text)                                       \
    {                                                     \
        double d;                                         \
        asm volatile(text " %0, %1;" : "=d"(d) : "d"(x)); \
        out[(k) * 20 + i] = d;                              \
    }

extern "C" __global__ void unary_f64(double *out, const double *a) {
    unsigned i = threadIdx.x;
    double x = a[i];
    OP(0, "neg.f64")
    OP(1, "abs.f64")
    OP(2, "mov.f64")
    OP(3, "rcp.rn.f64")
    OP(4, "rcp.rz.f64")
    OP(5, "rcp.rm.f64")
    OP(6, "rcp.rp.f64")
    OP(7, "sqrt.rn.f64")
    OP(8, "sqrt.rz.f64")
    OP(9, "sqrt.rm.f64")
    OP(10, "sqrt.rp.f64")
}
