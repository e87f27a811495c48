// f16 and bf16 through the headers: comparisons, conversions, arithmetic of single numbers and of pairs.
// compile: compute_80
// launch: half_math grid 1 block 64
// arg: out f16 256
// arg: out bf16 128
// arg: out u32 64
// arg: in f32 64 random 122
// arg: in f32 64 random 123

#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" __global__ void half_math(__half *out, __nv_bfloat16 *brain, unsigned *flags, const float *a,
                                     const float *b) {
    unsigned i = threadIdx.x;
    __half x = __float2half(a[i]), y = __float2half(b[i]);
    __nv_bfloat16 u = __float2bfloat16(a[i]), v = __float2bfloat16(b[i]);
    out[i] = __hadd(x, y);
    out[64 + i] = __hfma(x, y, __hneg(x));
    out[128 + i] = __hmax(x, __hmul_sat(y, y));
    out[192 + i] = __int2half_rn((int)i * 37);
    brain[i] = __hfma(u, v, u);
    brain[64 + i] = __hsub(u, v);
    __half2 pair = __halves2half2(x, y), other = __halves2half2(y, x);
    flags[i] = __hlt(x, y) | __heq(x, x) << 1 | __hisnan(y) << 2 | __hgtu(u, v) << 3 | __hbge2(pair, other) << 4 |
               (__half2int_rz(y) & 0xff) << 8 | (unsigned)__half_as_ushort(__low2half(__hmul2(pair, other))) << 16;
}
