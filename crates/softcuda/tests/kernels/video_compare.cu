// vmin, vmax and vset of words, halves and bytes.
// launch: video_compare grid 1 block 128
// arg: out u32 4736
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

extern "C" __global__ void video_compare(unsigned *out, const unsigned *a, const unsigned *b, const unsigned *c) {
    unsigned i = threadIdx.x, x = i < 64 ? a[i] : b[127 - i], y = i & 1 ? b[i] : a[i / 3 + 20], z = c[i];
    TWO(0, "vmin.u32.u32.u32 %0, %1, %2")
    TWO(1, "vmin.u32.u32.u32.sat %0, %1.b3, %2.h0")
    TWO(2, "vmin.s32.s32.s32 %0, %1, %2")
    TWO(3, "vmin.s32.s32.s32.sat %0, %1.b3, %2.h0")
    TWO(4, "vmin.s32.u32.s32 %0, %1, %2")
    TWO(5, "vmin.s32.u32.s32.sat %0, %1.b3, %2.h0")
    TWO(6, "vmin.u32.s32.u32 %0, %1, %2")
    TWO(7, "vmin.u32.s32.u32.sat %0, %1.b3, %2.h0")
    THREE(8, "vmin.u32.u32.u32 %0.b0, %1.b1, %2.b2, %3")
    TWO(9, "vmax.u32.u32.u32 %0, %1, %2")
    TWO(10, "vmax.u32.u32.u32.sat %0, %1.b3, %2.h0")
    TWO(11, "vmax.s32.s32.s32 %0, %1, %2")
    TWO(12, "vmax.s32.s32.s32.sat %0, %1.b3, %2.h0")
    TWO(13, "vmax.s32.u32.s32 %0, %1, %2")
    TWO(14, "vmax.s32.u32.s32.sat %0, %1.b3, %2.h0")
    TWO(15, "vmax.u32.s32.u32 %0, %1, %2")
    TWO(16, "vmax.u32.s32.u32.sat %0, %1.b3, %2.h0")
    THREE(17, "vmax.u32.u32.u32 %0.b0, %1.b1, %2.b2, %3")
    TWO(18, "vset.s32.s32.eq %0, %1, %2")
    TWO(19, "vset.u32.u32.eq %0, %1.b0, %2.b1")
    TWO(20, "vset.s32.u32.eq %0, %1.h1, %2.b3")
    TWO(21, "vset.s32.s32.ne %0, %1, %2")
    TWO(22, "vset.u32.u32.ne %0, %1.b0, %2.b1")
    TWO(23, "vset.s32.u32.ne %0, %1.h1, %2.b3")
    TWO(24, "vset.s32.s32.lt %0, %1, %2")
    TWO(25, "vset.u32.u32.lt %0, %1.b0, %2.b1")
    TWO(26, "vset.s32.u32.lt %0, %1.h1, %2.b3")
    TWO(27, "vset.s32.s32.le %0, %1, %2")
    TWO(28, "vset.u32.u32.le %0, %1.b0, %2.b1")
    TWO(29, "vset.s32.u32.le %0, %1.h1, %2.b3")
    TWO(30, "vset.s32.s32.gt %0, %1, %2")
    TWO(31, "vset.u32.u32.gt %0, %1.b0, %2.b1")
    TWO(32, "vset.s32.u32.gt %0, %1.h1, %2.b3")
    TWO(33, "vset.s32.s32.ge %0, %1, %2")
    TWO(34, "vset.u32.u32.ge %0, %1.b0, %2.b1")
    TWO(35, "vset.s32.u32.ge %0, %1.h1, %2.b3")
    THREE(36, "vset.s32.s32.ge %0.b3, %1, %2, %3")
}
