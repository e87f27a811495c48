// Multiplication of f32 in all roundings, flushed, saturated.
// launch: mul_f32 grid 4 block 100
// arg: out f32 2800
// arg: in f32 400 corners slow
// arg: in f32 400 corners

#define OP(k, text)                                                   \
    {                                                                 \
        float d;                                                      \
        asm volatile(text " %0, %1, %2;" : "=f"(d) : "f"(x), "f"(y)); \
        out[(k) * 400 + i] = d;                                         \
    }

extern "C" __global__ void mul_f32(float *out, const float *a, const float *b) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = a[i], y = b[i];
    OP(0, "mul.f32")
    OP(1, "mul.rz.f32")
    OP(2, "mul.rm.f32")
    OP(3, "mul.rp.f32")
    OP(4, "mul.rn.ftz.f32")
    OP(5, "mul.sat.f32")
    OP(6, "mul.rz.ftz.sat.f32")
}
