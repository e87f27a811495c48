// The four roundings of sum, product, quotient, root and fma of numbers that are no corners.
// launch: arith_f32_random grid 1 block 128
// arg: out f32 3072
// arg: in f32 128 random 16
// arg: in f32 128 random 17
// arg: in f32 128 random 18

#define OP(k, text)                                                               \
    {                                                                             \
        float d;                                                                  \
        asm volatile(text : "=f"(d) : "f"(x), "f"(y), "f"(z));                    \
        out[(k) * 128 + i] = d;                                                     \
    }
#define ROUNDINGS(k, rounding)                                                    \
    OP(k, "add." rounding ".f32 %0, %1, %2;")                                     \
    OP(k + 1, "mul." rounding ".f32 %0, %1, %2;")                                 \
    OP(k + 2, "fma." rounding ".f32 %0, %1, %2, %3;")                             \
    OP(k + 3, "div." rounding ".f32 %0, %1, %2;")                                 \
    OP(k + 4, "{.reg .f32 t; abs.f32 t, %1; sqrt." rounding ".f32 %0, t;}")       \
    OP(k + 5, "rcp." rounding ".f32 %0, %1;")

extern "C" __global__ void arith_f32_random(float *out, const float *a, const float *b, const float *c) {
    unsigned i = threadIdx.x;
    float x = a[i], y = b[i], z = c[i];
    ROUNDINGS(0, "rn")
    ROUNDINGS(6, "rz")
    ROUNDINGS(12, "rm")
    ROUNDINGS(18, "rp")
}
