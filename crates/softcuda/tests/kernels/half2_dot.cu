// A dot product in pairs of f16, with the sum kept in f32 and in f16.
// launch: half2_dot grid 1 block 32
// arg: out f32 64
// arg: in f32 128 random 76
// arg: in f32 128 random 77

#include <cuda_fp16.h>

extern "C" __global__ void half2_dot(float *out, const float *a, const float *b) {
    unsigned i = threadIdx.x;
    __half2 sum = __float2half2_rn(0.0f);
    float wide = 0;
    for (unsigned k = 0; k < 2; k++) {
        unsigned at = 4 * i + 2 * k;
        __half2 x = __floats2half2_rn(a[at], a[at + 1]), y = __floats2half2_rn(b[at], b[at + 1]);
        sum = __hfma2(x, y, sum);
        float2 product = __half22float2(__hmul2(x, y));
        wide += product.x + product.y;
    }
    out[i] = __half2float(__hadd(__low2half(sum), __high2half(sum)));
    out[32 + i] = wide;
}
