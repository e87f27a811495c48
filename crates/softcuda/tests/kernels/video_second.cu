// Video instructions whose result is added to a word, or of which the smaller or the larger is taken.
// launch: video_second grid 1 block 128
// arg: out u32 5248
// arg: in u32 128 corners slow
// arg: in u32 128 noise 95
// arg: in u32 128 noise 96

#define THREE(k, text)                                           \
    {                                                            \
        unsigned d;                                              \
        asm volatile(text ";" : "=r"(d) : "r"(x), "r"(y), "r"(z)); \
        out[(k) * 128 + i] = d;                                  \
    }

extern "C" __global__ void video_second(unsigned *out, const unsigned *a, const unsigned *b, const unsigned *c) {
    unsigned i = threadIdx.x, x = i < 64 ? a[i] : b[127 - i], y = i & 1 ? b[i] : a[i / 3 + 20], z = c[i];
    THREE(0, "vadd.s32.s32.s32.sat.add %0, %1.b1, %2.h1, %3")
    THREE(1, "vadd.u32.u32.u32.add %0, %1.b2, %2.b0, %3")
    THREE(2, "vadd.s32.s32.s32.sat.min %0, %1.b1, %2.h1, %3")
    THREE(3, "vadd.u32.u32.u32.min %0, %1.b2, %2.b0, %3")
    THREE(4, "vadd.s32.s32.s32.sat.max %0, %1.b1, %2.h1, %3")
    THREE(5, "vadd.u32.u32.u32.max %0, %1.b2, %2.b0, %3")
    THREE(6, "vadd.u32.s32.s32.sat.add %0, %1, %2, %3")
    THREE(7, "vsub.s32.s32.s32.sat.add %0, %1.b1, %2.h1, %3")
    THREE(8, "vsub.u32.u32.u32.add %0, %1.b2, %2.b0, %3")
    THREE(9, "vsub.s32.s32.s32.sat.min %0, %1.b1, %2.h1, %3")
    THREE(10, "vsub.u32.u32.u32.min %0, %1.b2, %2.b0, %3")
    THREE(11, "vsub.s32.s32.s32.sat.max %0, %1.b1, %2.h1, %3")
    THREE(12, "vsub.u32.u32.u32.max %0, %1.b2, %2.b0, %3")
    THREE(13, "vsub.u32.s32.s32.sat.add %0, %1, %2, %3")
    THREE(14, "vabsdiff.s32.s32.s32.sat.add %0, %1.b1, %2.h1, %3")
    THREE(15, "vabsdiff.u32.u32.u32.add %0, %1.b2, %2.b0, %3")
    THREE(16, "vabsdiff.s32.s32.s32.sat.min %0, %1.b1, %2.h1, %3")
    THREE(17, "vabsdiff.u32.u32.u32.min %0, %1.b2, %2.b0, %3")
    THREE(18, "vabsdiff.s32.s32.s32.sat.max %0, %1.b1, %2.h1, %3")
    THREE(19, "vabsdiff.u32.u32.u32.max %0, %1.b2, %2.b0, %3")
    THREE(20, "vabsdiff.u32.s32.s32.sat.add %0, %1, %2, %3")
    THREE(21, "vmin.s32.s32.s32.sat.add %0, %1.b1, %2.h1, %3")
    THREE(22, "vmin.u32.u32.u32.add %0, %1.b2, %2.b0, %3")
    THREE(23, "vmin.s32.s32.s32.sat.min %0, %1.b1, %2.h1, %3")
    THREE(24, "vmin.u32.u32.u32.min %0, %1.b2, %2.b0, %3")
    THREE(25, "vmin.s32.s32.s32.sat.max %0, %1.b1, %2.h1, %3")
    THREE(26, "vmin.u32.u32.u32.max %0, %1.b2, %2.b0, %3")
    THREE(27, "vmin.u32.s32.s32.sat.add %0, %1, %2, %3")
    THREE(28, "vmax.s32.s32.s32.sat.add %0, %1.b1, %2.h1, %3")
    THREE(29, "vmax.u32.u32.u32.add %0, %1.b2, %2.b0, %3")
    THREE(30, "vmax.s32.s32.s32.sat.min %0, %1.b1, %2.h1, %3")
    THREE(31, "vmax.u32.u32.u32.min %0, %1.b2, %2.b0, %3")
    THREE(32, "vmax.s32.s32.s32.sat.max %0, %1.b1, %2.h1, %3")
    THREE(33, "vmax.u32.u32.u32.max %0, %1.b2, %2.b0, %3")
    THREE(34, "vmax.u32.s32.s32.sat.add %0, %1, %2, %3")
    THREE(35, "vset.s32.s32.lt.add %0, %1.b1, %2.b0, %3")
    THREE(36, "vset.s32.s32.lt.min %0, %1.b1, %2.b0, %3")
    THREE(37, "vset.s32.s32.lt.max %0, %1.b1, %2.b0, %3")
    THREE(38, "vshr.u32.u32.u32.clamp.add %0, %1, %2.b0, %3")
    THREE(39, "vshr.u32.u32.u32.clamp.min %0, %1, %2.b0, %3")
    THREE(40, "vshr.u32.u32.u32.clamp.max %0, %1, %2.b0, %3")
}
