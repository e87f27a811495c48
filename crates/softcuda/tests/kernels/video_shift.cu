// vshl and vshr, clamped and wrapped.
// launch: video_shift grid 1 block 128
// arg: out u32 2048
// arg: in u32 128 corners slow
// arg: in u32 128 noise 95
// arg: in u32 128 noise 96

#define TWO(k, text)                                             \
    {                                                            \
        unsigned d;                                              \
        asm volatile(text ";" : "=r"(d) : "r"(x), "r"(y));       \
        out[(k) * 128 + i] = d;                                  \
    }
#define THREE(k, text)                                           \
    {                                                            \
        unsigned d;                                              \
        asm volatile(text ";" : "=r"(d) : "r"(x), "r"(y), "r"(z)); \
        out[(k) * 128 + i] = d;                                  \
    }

extern "C" __global__ void video_shift(unsigned *out, const unsigned *a, const unsigned *b, const unsigned *c) {
    unsigned i = threadIdx.x, x = i < 64 ? a[i] : b[127 - i], y = i & 1 ? b[i] : a[i / 3 + 20], z = c[i];
    TWO(0, "vshl.u32.u32.u32.clamp %0, %1, %2.b0")
    TWO(1, "vshl.s32.s32.u32.clamp %0, %1, %2.b0")
    TWO(2, "vshl.u32.u32.u32.wrap %0, %1, %2.b0")
    TWO(3, "vshl.s32.s32.u32.wrap %0, %1, %2.b0")
    TWO(4, "vshr.u32.u32.u32.clamp %0, %1, %2.b0")
    TWO(5, "vshr.u32.u32.u32.sat.clamp %0, %1.h1, %2.b1")
    THREE(6, "vshr.u32.u32.u32.sat.clamp %0.b2, %1.b3, %2.b2, %3")
    TWO(7, "vshr.s32.s32.u32.clamp %0, %1, %2.b0")
    TWO(8, "vshr.s32.s32.u32.sat.clamp %0, %1.h1, %2.b1")
    THREE(9, "vshr.s32.s32.u32.sat.clamp %0.b2, %1.b3, %2.b2, %3")
    TWO(10, "vshr.u32.u32.u32.wrap %0, %1, %2.b0")
    TWO(11, "vshr.u32.u32.u32.sat.wrap %0, %1.h1, %2.b1")
    THREE(12, "vshr.u32.u32.u32.sat.wrap %0.b2, %1.b3, %2.b2, %3")
    TWO(13, "vshr.s32.s32.u32.wrap %0, %1, %2.b0")
    TWO(14, "vshr.s32.s32.u32.sat.wrap %0, %1.h1, %2.b1")
    THREE(15, "vshr.s32.s32.u32.sat.wrap %0.b2, %1.b3, %2.b2, %3")
}
