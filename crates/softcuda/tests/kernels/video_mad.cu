// vmad: products of parts plus a word, scaled and saturated.
// launch: video_mad grid 1 block 128
// arg: out u32 2304
// arg: in u32 128 corners slow
// arg: in u32 128 noise 95
// arg: in u32 128 noise 96

#define THREE(k, text)                                           \
    {                                                            \
        unsigned d;                                              \
        asm volatile(text ";" : "=r"(d) : "r"(x), "r"(y), "r"(z)); \
        out[(k) * 128 + i] = d;                                  \
    }

extern "C" __global__ void video_mad(unsigned *out, const unsigned *a, const unsigned *b, const unsigned *c) {
    unsigned i = threadIdx.x, x = i < 64 ? a[i] : b[127 - i], y = i & 1 ? b[i] : a[i / 3 + 20], z = c[i];
    THREE(0, "vmad.u32.u32.u32 %0, %1, %2, %3")
    THREE(1, "vmad.s32.s32.s32 %0, %1, %2, %3")
    THREE(2, "vmad.s32.s32.s32.sat %0, %1, %2.b1, %3")
    THREE(3, "vmad.s32.s32.s32.shr7 %0, %1.h0, %2, %3")
    THREE(4, "vmad.s32.s32.s32.sat.shr7 %0, %1.h0, %2.b1, %3")
    THREE(5, "vmad.s32.s32.s32.shr15 %0, %1.h0, %2, %3")
    THREE(6, "vmad.s32.s32.s32.sat.shr15 %0, %1.h0, %2.b1, %3")
    THREE(7, "vmad.s32.s32.u32 %0, %1, %2, %3")
    THREE(8, "vmad.s32.s32.u32.sat %0, %1, %2.b1, %3")
    THREE(9, "vmad.s32.s32.u32.sat.shr7 %0, %1.h0, %2.b1, %3")
    THREE(10, "vmad.s32.s32.u32.sat.shr15 %0, %1.h0, %2.b1, %3")
    THREE(11, "vmad.s32.u32.s32 %0, %1, %2, %3")
    THREE(12, "vmad.s32.u32.s32.shr7 %0, %1.h0, %2, %3")
    THREE(13, "vmad.s32.u32.s32.sat.shr7 %0, %1.h0, %2.b1, %3")
    THREE(14, "vmad.s32.u32.s32.shr15 %0, %1.h0, %2, %3")
    THREE(15, "vmad.s32.u32.s32.sat.shr15 %0, %1.h0, %2.b1, %3")
    THREE(16, "vmad.s32.s32.s32.po %0, %1.h1, %2.h0, %3")
    THREE(17, "vmad.s32.s32.s32.po.shr7 %0, %1.h1, %2.h0, %3")
}
