// ex2 and tanh of f16 and bf16: within the bound of the exact value or not.
// launch: approx_f16 grid 1 block 128
// arg: out u32 512
// arg: in f32 128 random 51

#include <cuda_fp16.h>
#include <cuda_bf16.h>

extern "C" __global__ void approx_f16(unsigned *out, const float *in) {
    unsigned i = threadIdx.x;
    __half x = __float2half(in[i]), power, tangent;
    __nv_bfloat16 y = __float2bfloat16(in[i]), power2, tangent2;
    asm volatile("ex2.approx.f16 %0, %1;" : "=h"(*(unsigned short *)&power) : "h"(*(unsigned short *)&x));
    asm volatile("tanh.approx.f16 %0, %1;" : "=h"(*(unsigned short *)&tangent) : "h"(*(unsigned short *)&x));
    asm volatile("ex2.approx.ftz.bf16 %0, %1;" : "=h"(*(unsigned short *)&power2) : "h"(*(unsigned short *)&y));
    asm volatile("tanh.approx.bf16 %0, %1;" : "=h"(*(unsigned short *)&tangent2) : "h"(*(unsigned short *)&y));
    double exact = exp2((double)__half2float(x)), exact2 = exp2((double)__bfloat162float(y));
    double bent = tanh((double)__half2float(x)), bent2 = tanh((double)__bfloat162float(y));
    out[i] = fabs(exact - __half2float(power)) <= 0.0012 * exact;
    out[128 + i] = fabs(bent - __half2float(tangent)) <= 0.0006 + 0.001 * fabs(bent);
    out[256 + i] = fabs(exact2 - __bfloat162float(power2)) <= 0.009 * exact2;
    out[384 + i] = fabs(bent2 - __bfloat162float(tangent2)) <= 0.005 + 0.01 * fabs(bent2);
}
