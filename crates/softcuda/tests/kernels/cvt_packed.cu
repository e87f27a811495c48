// cvt of two f32 to a pair of f16 or bf16, and of f32 to tf32.
// launch: cvt_packed grid 4 block 100
// arg: out u32 3600
// arg: in f32 400 corners slow
// arg: in f32 400 corners

#define OP(k, text)                                                   \
    {                                                                 \
        unsigned d;                                                   \
        asm volatile(text " %0, %1, %2;" : "=r"(d) : "f"(x), "f"(y)); \
        out[(k) * 400 + i] = d;                                         \
    }

extern "C" __global__ void cvt_packed(unsigned *out, const float *a, const float *b) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, d;
    float x = a[i], y = b[i];
    OP(0, "cvt.rn.f16x2.f32")
    OP(1, "cvt.rz.f16x2.f32")
    OP(2, "cvt.rn.relu.f16x2.f32")
    OP(3, "cvt.rn.bf16x2.f32")
    OP(4, "cvt.rz.bf16x2.f32")
    OP(5, "cvt.rz.relu.bf16x2.f32")
    asm volatile("cvt.rna.tf32.f32 %0, %1;" : "=r"(d) : "f"(x * 1.0000005f));
    out[2400 + i] = d;
    asm volatile("cvt.rn.tf32.f32 %0, %1;" : "=r"(d) : "f"(y * 1.0000005f));
    out[2800 + i] = d;
    asm volatile("cvt.rz.relu.tf32.f32 %0, %1;" : "=r"(d) : "f"(x * 1.0000005f));
    out[3200 + i] = d;
}
