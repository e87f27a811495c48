// Smaller and larger of two f32: NaN lost or kept, -0 below 0, the magnitude with the sign of a product.
// launch: min_max_f32 grid 4 block 100
// arg: out f32 4000
// arg: in f32 400 corners slow
// arg: in f32 400 corners

#define OP(k, text)                                                   \
    {                                                                 \
        float d;                                                      \
        asm volatile(text " %0, %1, %2;" : "=f"(d) : "f"(x), "f"(y)); \
        out[(k) * 400 + i] = d;                                         \
    }

extern "C" __global__ void min_max_f32(float *out, const float *a, const float *b) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = a[i], y = b[i];
    OP(0, "min.f32")
    OP(1, "max.f32")
    OP(2, "min.ftz.f32")
    OP(3, "max.ftz.f32")
    OP(4, "min.NaN.f32")
    OP(5, "max.NaN.f32")
    OP(6, "min.xorsign.abs.f32")
    OP(7, "max.xorsign.abs.f32")
    OP(8, "max.ftz.NaN.xorsign.abs.f32")
    OP(9, "copysign.f32")
}
