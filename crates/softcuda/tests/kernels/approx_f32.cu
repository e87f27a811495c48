// Approximate instructions of f32, over the range in which their error is bounded by units of the last place.
// launch: approx_f32 grid 1 block 256
// arg: out f32 1536
// arg: in f32 256 random 20
// arg: in f32 256 random 21
// compare: ulp 2

#define OP(k, text)                                              \
    {                                                            \
        float d;                                                 \
        asm volatile(text : "=f"(d) : "f"(x), "f"(y));           \
        out[(k) * 256 + i] = d;                                    \
    }

extern "C" __global__ void approx_f32(float *out, const float *a, const float *b) {
    unsigned i = threadIdx.x;
    float x = fabsf(a[i]), y = b[i];
    OP(0, "rcp.approx.f32 %0, %1;")
    OP(1, "sqrt.approx.f32 %0, %1;")
    OP(2, "rsqrt.approx.f32 %0, %1;")
    OP(3, "ex2.approx.f32 %0, %2;")
    OP(4, "div.approx.f32 %0, %1, %2;")
    OP(5, "div.full.f32 %0, %1, %2;")
}
