// The four roundings of f64's arithmetic over numbers that are no corners.
// launch: arith_f64_random grid 1 block 64
// arg: out f64 1536
// arg: in f64 64 random 24
// arg: in f64 64 random 25
// arg: in f64 64 random 26

#define OP(k, text)                                                               \
    {                                                                             \
        double d;                                                                 \
        asm volatile(text : "=d"(d) : "d"(x), "d"(y), "d"(z));                    \
        out[(k) * 64 + i] = d;                                                      \
    }
#define ROUNDINGS(k, rounding)                                                    \
    OP(k, "add." rounding ".f64 %0, %1, %2;")                                     \
    OP(k + 1, "mul." rounding ".f64 %0, %1, %2;")                                 \
    OP(k + 2, "fma." rounding ".f64 %0, %1, %2, %3;")                             \
    OP(k + 3, "div." rounding ".f64 %0, %1, %2;")                                 \
    OP(k + 4, "{.reg .f64 t; abs.f64 t, %1; sqrt." rounding ".f64 %0, t;}")       \
    OP(k + 5, "rcp." rounding ".f64 %0, %1;")

extern "C" __global__ void arith_f64_random(double *out, const double *a, const double *b, const double *c) {
    unsigned i = threadIdx.x;
    double x = a[i], y = b[i], z = c[i];
    ROUNDINGS(0, "rn")
    ROUNDINGS(6, "rz")
    ROUNDINGS(12, "rm")
    ROUNDINGS(18, "rp")
}
