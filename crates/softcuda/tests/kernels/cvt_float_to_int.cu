// cvt from f16, f32 and f64 to integers of every type in all roundings: too large is the largest, NaN what it is.
// launch: cvt_float_to_int grid 4 block 20
// arg: out u64 2560
// arg: in u16 20 bits 0x0000,0x8000,0x3c00,0xbc00,0x0001,0x8001,0x5bf8,0x5bfc,0xd800,0x7bff,0xfbff,0x7c00,0xfc00,0x7e00,0x3800,0xb800,0x3e00,0x4100,0xc100,0x5c04
// arg: in f32 20 bits 0,0x80000000,0x3f800000,0xbf800000,1,0x80000001,0x4f000000,0xcf000000,0x4effffff,0x5f000000,0xdf000000,0x5f800000,0x7f800000,0xff800000,0x7fc00000,0x3f000000,0xbf000000,0x40200000,0x437f8000,0x47800000
// arg: in f64 20 bits 0,0x8000000000000000,0x3ff0000000000000,0xbff0000000000000,1,0x41dfffffffe00000,0xc1e0000000000000,0x41efffffffe00000,0xc1e0000000100000,0x43e0000000000000,0xc3e0000000000000,0x43f0000000000000,0x7ff0000000000000,0xfff0000000000000,0x7ff8000000000000,0x3fe0000000000000,0xbfe8000000000000,0x4004000000000000,0x40dfffe000000000,0x41dfffffff999999

#define NARROW(k, how, to, from, letter)                                                   \
    {                                                                                      \
        unsigned d;                                                                        \
        asm volatile("cvt." how "." to "." from " %0, %1;" : "=r"(d) : letter(x));         \
        out[(k) * 20] = d;                                                                   \
    }
#define HALF(k, how, to, from, letter)                                                     \
    {                                                                                      \
        unsigned short d;                                                                  \
        asm volatile("cvt." how "." to "." from " %0, %1;" : "=h"(d) : letter(x));         \
        out[(k) * 20] = d;                                                                   \
    }
#define WIDE(k, how, to, from, letter)                                                     \
    {                                                                                      \
        unsigned long long d;                                                              \
        asm volatile("cvt." how "." to "." from " %0, %1;" : "=l"(d) : letter(x));         \
        out[(k) * 20] = d;                                                                   \
    }
#define ROUND(k, how, from, letter)                                                        \
    NARROW(k, how, "u8", from, letter) NARROW(k + 1, how, "s8", from, letter)              \
    HALF(k + 2, how, "u16", from, letter) HALF(k + 3, how, "s16", from, letter)            \
    NARROW(k + 4, how, "u32", from, letter) NARROW(k + 5, how, "s32", from, letter)        \
    WIDE(k + 6, how, "u64", from, letter) WIDE(k + 7, how, "s64", from, letter)
#define ALL(from, letter)                                                                  \
    ROUND(0, "rni", from, letter) ROUND(8, "rzi", from, letter)                            \
    ROUND(16, "rmi", from, letter) ROUND(24, "rpi", from, letter)

extern "C" __global__ void cvt_float_to_int(unsigned long long *out, const unsigned short *f16, const float *f32,
                                            const double *f64) {
    out += blockIdx.x * 640 + threadIdx.x;
    if (blockIdx.x == 0) {
        unsigned short x = f16[threadIdx.x];
        ALL("f16", "h")
    } else if (blockIdx.x == 1) {
        float x = f32[threadIdx.x];
        ALL("f32", "f")
    } else if (blockIdx.x == 2) {
        double x = f64[threadIdx.x];
        ALL("f64", "d")
    } else {
        float x = f32[threadIdx.x];
        ROUND(0, "rni.ftz", "f32", "f")
        ROUND(8, "rpi.ftz.sat", "f32", "f")
        ROUND(16, "rmi.sat", "f32", "f")
    }
}
