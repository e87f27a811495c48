// sin, cos and lg2, whose error is bounded absolutely, and tanh, whose error is bounded relatively: the difference to
// the exact function is within the bound or not.
// launch: approx_absolute grid 1 block 256
// arg: out u32 1024
// arg: in f32 256 random 22

extern "C" __global__ void approx_absolute(unsigned *out, const float *a) {
    unsigned i = threadIdx.x;
    float x = a[i] * 0.75f, sine, cosine, logarithm, tangent, positive = fabsf(x) + 2.0f;
    asm volatile("sin.approx.f32 %0, %1;" : "=f"(sine) : "f"(x));
    asm volatile("cos.approx.f32 %0, %1;" : "=f"(cosine) : "f"(x));
    asm volatile("lg2.approx.f32 %0, %1;" : "=f"(logarithm) : "f"(positive));
    asm volatile("tanh.approx.f32 %0, %1;" : "=f"(tangent) : "f"(x));
    out[i] = fabs(sin((double)x) - sine) <= 7.0e-7;
    out[256 + i] = fabs(cos((double)x) - cosine) <= 7.0e-7;
    out[512 + i] = fabs(log2((double)positive) - logarithm) <= 7.0e-7;
    out[768 + i] = fabs(tanh((double)x) - tangent) <= 5.0e-4 * fabs(tanh((double)x)) + 1.0e-30;
}
