// fma of f32: one rounding, not two; also mad, which is fma.
// launch: fma_f32 grid 4 block 100
// arg: out f32 3200
// arg: in f32 400 corners slow
// arg: in f32 400 corners
// arg: in f32 400 corners random 19

#define OP(k, text)                                                               \
    {                                                                             \
        float d;                                                                  \
        asm volatile(text " %0, %1, %2, %3;" : "=f"(d) : "f"(x), "f"(y), "f"(z)); \
        out[(k) * 400 + i] = d;                                                     \
    }

extern "C" __global__ void fma_f32(float *out, const float *a, const float *b, const float *c) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = a[i], y = b[i], z = c[i];
    OP(0, "fma.rn.f32")
    OP(1, "fma.rz.f32")
    OP(2, "fma.rm.f32")
    OP(3, "fma.rp.f32")
    OP(4, "fma.rn.ftz.f32")
    OP(5, "fma.rn.sat.f32")
    OP(6, "fma.rz.ftz.sat.f32")
    OP(7, "mad.rn.f32")
}
