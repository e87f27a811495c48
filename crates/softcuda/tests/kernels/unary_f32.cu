// Instructions of one f32 operand whose bits are fixed.
// launch: unary_f32 grid 1 block 20
// arg: out f32 320
// arg: in f32 20 corners

#define OP(k, text)                                       \
    {                                                     \
        float d;                                          \
        asm volatile(text " %0, %1;" : "=f"(d) : "f"(x)); \
        out[(k) * 20 + i] = d;                              \
    }

extern "C" __global__ void unary_f32(float *out, const float *a) {
    unsigned i = threadIdx.x;
    float x = a[i];
    OP(0, "neg.f32")
    OP(1, "neg.ftz.f32")
    OP(2, "abs.f32")
    OP(3, "abs.ftz.f32")
    OP(4, "mov.f32")
    OP(5, "mov.b32")
    OP(6, "rcp.rn.f32")
    OP(7, "rcp.rz.f32")
    OP(8, "rcp.rm.ftz.f32")
    OP(9, "rcp.rp.f32")
    OP(10, "sqrt.rn.f32")
    OP(11, "sqrt.rz.f32")
    OP(12, "sqrt.rm.f32")
    OP(13, "sqrt.rp.ftz.f32")
    OP(14, "sqrt.rn.ftz.f32")
    OP(15, "rcp.rn.ftz.f32")
}
