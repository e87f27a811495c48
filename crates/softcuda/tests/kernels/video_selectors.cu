// Video instructions on halves and bytes in another order, and into some of them only.
// launch: video_selectors grid 1 block 128
// arg: out u32 3840
// arg: in u32 128 corners slow
// arg: in u32 128 noise 95
// arg: in u32 128 noise 96

#define THREE(k, text)                                           \
    {                                                            \
        unsigned d;                                              \
        asm volatile(text ";" : "=r"(d) : "r"(x), "r"(y), "r"(z)); \
        out[(k) * 128 + i] = d;                                  \
    }

extern "C" __global__ void video_selectors(unsigned *out, const unsigned *a, const unsigned *b, const unsigned *c) {
    unsigned i = threadIdx.x, x = i < 64 ? a[i] : b[127 - i], y = i & 1 ? b[i] : a[i / 3 + 20], z = c[i];
    THREE(0, "vadd2.s32.s32.s32 %0.h0, %1.h10, %2.h30, %3")
    THREE(1, "vmax2.u32.u32.u32.add %0.h0, %1.h32, %2.h10, %3")
    THREE(2, "vadd2.s32.s32.s32 %0.h1, %1.h01, %2.h11, %3")
    THREE(3, "vmax2.u32.u32.u32.add %0.h1, %1.h11, %2.h01, %3")
    THREE(4, "vadd2.s32.s32.s32 %0.h10, %1.h23, %2.h32, %3")
    THREE(5, "vmax2.u32.u32.u32.add %0.h10, %1.h30, %2.h23, %3")
    THREE(6, "vsub4.s32.s32.s32.sat %0.b0, %1.b3210, %2.b7654, %3")
    THREE(7, "vabsdiff4.u32.u32.u32.add %0.b0, %1.b0123, %2.b3210, %3")
    THREE(8, "vset4.u32.u32.lt %0.b0, %1.b0123, %2.b7070, %3")
    THREE(9, "vsub4.s32.s32.s32.sat %0.b1, %1.b7654, %2.b0123, %3")
    THREE(10, "vsub4.s32.s32.s32.sat %0.b10, %1.b0123, %2.b7070, %3")
    THREE(11, "vsub4.s32.s32.s32.sat %0.b2, %1.b7070, %2.b5162, %3")
    THREE(12, "vabsdiff4.u32.u32.u32.add %0.b2, %1.b4444, %2.b7070, %3")
    THREE(13, "vsub4.s32.s32.s32.sat %0.b20, %1.b5162, %2.b4444, %3")
    THREE(14, "vset4.u32.u32.lt %0.b20, %1.b3210, %2.b7654, %3")
    THREE(15, "vsub4.s32.s32.s32.sat %0.b21, %1.b4444, %2.b3210, %3")
    THREE(16, "vsub4.s32.s32.s32.sat %0.b210, %1.b3210, %2.b7654, %3")
    THREE(17, "vabsdiff4.u32.u32.u32.add %0.b210, %1.b0123, %2.b3210, %3")
    THREE(18, "vsub4.s32.s32.s32.sat %0.b3, %1.b7654, %2.b0123, %3")
    THREE(19, "vsub4.s32.s32.s32.sat %0.b30, %1.b0123, %2.b7070, %3")
    THREE(20, "vset4.u32.u32.lt %0.b30, %1.b5162, %2.b4444, %3")
    THREE(21, "vsub4.s32.s32.s32.sat %0.b31, %1.b7070, %2.b5162, %3")
    THREE(22, "vabsdiff4.u32.u32.u32.add %0.b31, %1.b4444, %2.b7070, %3")
    THREE(23, "vsub4.s32.s32.s32.sat %0.b310, %1.b5162, %2.b4444, %3")
    THREE(24, "vsub4.s32.s32.s32.sat %0.b32, %1.b4444, %2.b3210, %3")
    THREE(25, "vsub4.s32.s32.s32.sat %0.b320, %1.b3210, %2.b7654, %3")
    THREE(26, "vabsdiff4.u32.u32.u32.add %0.b320, %1.b0123, %2.b3210, %3")
    THREE(27, "vset4.u32.u32.lt %0.b320, %1.b0123, %2.b7070, %3")
    THREE(28, "vsub4.s32.s32.s32.sat %0.b321, %1.b7654, %2.b0123, %3")
    THREE(29, "vsub4.s32.s32.s32.sat %0.b3210, %1.b0123, %2.b7070, %3")
}
