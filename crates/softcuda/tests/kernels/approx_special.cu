// What approximate instructions give for zeros, infinities and NaN, which the ISA fixes; with and without flushing.
// launch: approx_special grid 1 block 8
// arg: out f32 112
// arg: in f32 8 bits 0x00000000,0x80000000,0x7f800000,0xff800000,0x7fc00000,0xffc00001,0x00000000,0x80000000

#define OP(k, text)                                       \
    {                                                     \
        float d;                                          \
        asm volatile(text " %0, %1;" : "=f"(d) : "f"(x)); \
        out[(k) * 8 + i] = d;                               \
    }

extern "C" __global__ void approx_special(float *out, const float *a) {
    unsigned i = threadIdx.x;
    float x = a[i];
    OP(0, "rcp.approx.f32")
    OP(1, "rcp.approx.ftz.f32")
    OP(2, "sqrt.approx.f32")
    OP(3, "sqrt.approx.ftz.f32")
    OP(4, "rsqrt.approx.f32")
    OP(5, "rsqrt.approx.ftz.f32")
    OP(6, "sin.approx.f32")
    OP(7, "sin.approx.ftz.f32")
    OP(8, "cos.approx.f32")
    OP(9, "lg2.approx.f32")
    OP(10, "lg2.approx.ftz.f32")
    OP(11, "ex2.approx.f32")
    OP(12, "ex2.approx.ftz.f32")
    OP(13, "tanh.approx.f32")
}
