// cvt of pairs of f32 and of f16 to 8-bit floats.
// launch: cvt_to_fp8 grid 4 block 100
// arg: out u16 3200
// arg: in f32 400 corners slow
// arg: in f32 400 corners random 92
// arg: in f16x2 400 corners

#define TWO(k, text)                                                  \
    {                                                                 \
        unsigned short d;                                             \
        asm volatile(text " %0, %1, %2;" : "=h"(d) : "f"(x), "f"(y)); \
        out[(k) * 400 + i] = d;                                       \
    }
#define ONE(k, text)                                          \
    {                                                         \
        unsigned short d;                                     \
        asm volatile(text " %0, %1;" : "=h"(d) : "r"(z));     \
        out[(k) * 400 + i] = d;                               \
    }

extern "C" __global__ void cvt_to_fp8(unsigned short *out, const float *a, const float *b, const unsigned *c) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, z = c[i];
    float x = a[i], y = b[i];
    // Into the range of the small formats.
    if (i % 4 == 1) y = __uint_as_float((__float_as_uint(y) & 0x81ffffff) | 0x3a000000);
    TWO(0, "cvt.rn.satfinite.e4m3x2.f32")
    TWO(1, "cvt.rn.satfinite.e5m2x2.f32")
    TWO(2, "cvt.rn.satfinite.relu.e4m3x2.f32")
    TWO(3, "cvt.rn.satfinite.relu.e5m2x2.f32")
    ONE(4, "cvt.rn.satfinite.e4m3x2.f16x2")
    ONE(5, "cvt.rn.satfinite.e5m2x2.f16x2")
    ONE(6, "cvt.rn.satfinite.relu.e4m3x2.f16x2")
    ONE(7, "cvt.rn.satfinite.relu.e5m2x2.f16x2")
}
