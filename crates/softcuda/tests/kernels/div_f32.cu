// Division of f32 with IEEE's roundings.
// launch: div_f32 grid 4 block 100
// arg: out f32 2400
// arg: in f32 400 corners slow
// arg: in f32 400 corners

#define OP(k, text)                                                   \
    {                                                                 \
        float d;                                                      \
        asm volatile(text " %0, %1, %2;" : "=f"(d) : "f"(x), "f"(y)); \
        out[(k) * 400 + i] = d;                                         \
    }

extern "C" __global__ void div_f32(float *out, const float *a, const float *b) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = a[i], y = b[i];
    OP(0, "div.rn.f32")
    OP(1, "div.rz.f32")
    OP(2, "div.rm.f32")
    OP(3, "div.rp.f32")
    OP(4, "div.rn.ftz.f32")
    OP(5, "div.rp.ftz.f32")
}
