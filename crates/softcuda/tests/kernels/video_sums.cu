// vadd, vsub and vabsdiff of words, halves and bytes, saturated, and merged into another word.
// launch: video_sums grid 1 block 128
// arg: out u32 3328
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

extern "C" __global__ void video_sums(unsigned *out, const unsigned *a, const unsigned *b, const unsigned *c) {
    unsigned i = threadIdx.x, x = i < 64 ? a[i] : b[127 - i], y = i & 1 ? b[i] : a[i / 3 + 20], z = c[i];
    TWO(0, "vadd.u32.u32.u32 %0, %1, %2")
    TWO(1, "vadd.u32.u32.u32.sat %0, %1.h1, %2.b2")
    TWO(2, "vadd.s32.s32.s32 %0, %1, %2")
    TWO(3, "vadd.s32.s32.s32.sat %0, %1.h1, %2.b2")
    TWO(4, "vadd.s32.u32.s32 %0, %1, %2")
    TWO(5, "vadd.s32.u32.s32.sat %0, %1.h1, %2.b2")
    TWO(6, "vadd.u32.s32.u32 %0, %1, %2")
    TWO(7, "vadd.u32.s32.u32.sat %0, %1.h1, %2.b2")
    TWO(8, "vsub.u32.u32.u32 %0, %1, %2")
    TWO(9, "vsub.u32.u32.u32.sat %0, %1.h1, %2.b2")
    TWO(10, "vsub.s32.s32.s32 %0, %1, %2")
    TWO(11, "vsub.s32.s32.s32.sat %0, %1.h1, %2.b2")
    TWO(12, "vsub.s32.u32.s32 %0, %1, %2")
    TWO(13, "vsub.s32.u32.s32.sat %0, %1.h1, %2.b2")
    TWO(14, "vsub.u32.s32.u32 %0, %1, %2")
    TWO(15, "vsub.u32.s32.u32.sat %0, %1.h1, %2.b2")
    TWO(16, "vabsdiff.u32.u32.u32 %0, %1, %2")
    TWO(17, "vabsdiff.u32.u32.u32.sat %0, %1.h1, %2.b2")
    TWO(18, "vabsdiff.s32.s32.s32 %0, %1, %2")
    TWO(19, "vabsdiff.s32.s32.s32.sat %0, %1.h1, %2.b2")
    TWO(20, "vabsdiff.s32.u32.s32 %0, %1, %2")
    TWO(21, "vabsdiff.s32.u32.s32.sat %0, %1.h1, %2.b2")
    TWO(22, "vabsdiff.u32.s32.u32 %0, %1, %2")
    TWO(23, "vabsdiff.u32.s32.u32.sat %0, %1.h1, %2.b2")
    THREE(24, "vabsdiff.s32.s32.u32.sat %0.b1, %1.h0, %2.b3, %3")
    THREE(25, "vabsdiff.u32.s32.s32.sat %0.h0, %1, %2, %3")
}
