// Video instructions on two halves at once.
// launch: video_halves grid 1 block 128
// arg: out u32 8960
// arg: in u32 128 corners slow
// arg: in u32 128 noise 95
// arg: in u32 128 noise 96

#define THREE(k, text)                                           \
    {                                                            \
        unsigned d;                                              \
        asm volatile(text ";" : "=r"(d) : "r"(x), "r"(y), "r"(z)); \
        out[(k) * 128 + i] = d;                                  \
    }

extern "C" __global__ void video_halves(unsigned *out, const unsigned *a, const unsigned *b, const unsigned *c) {
    unsigned i = threadIdx.x, x = i < 64 ? a[i] : b[127 - i], y = i & 1 ? b[i] : a[i / 3 + 20], z = c[i];
    THREE(0, "vadd2.u32.u32.u32 %0, %1, %2, %3")
    THREE(1, "vadd2.u32.u32.u32.sat %0, %1, %2, %3")
    THREE(2, "vadd2.s32.s32.s32 %0, %1, %2, %3")
    THREE(3, "vadd2.s32.s32.s32.sat %0, %1, %2, %3")
    THREE(4, "vadd2.s32.u32.s32 %0, %1, %2, %3")
    THREE(5, "vadd2.s32.u32.s32.sat %0, %1, %2, %3")
    THREE(6, "vadd2.u32.s32.u32 %0, %1, %2, %3")
    THREE(7, "vadd2.u32.s32.u32.sat %0, %1, %2, %3")
    THREE(8, "vadd2.s32.s32.s32.add %0, %1, %2, %3")
    THREE(9, "vadd2.u32.u32.u32.add %0, %1, %2, %3")
    THREE(10, "vsub2.u32.u32.u32 %0, %1, %2, %3")
    THREE(11, "vsub2.u32.u32.u32.sat %0, %1, %2, %3")
    THREE(12, "vsub2.s32.s32.s32 %0, %1, %2, %3")
    THREE(13, "vsub2.s32.s32.s32.sat %0, %1, %2, %3")
    THREE(14, "vsub2.s32.u32.s32 %0, %1, %2, %3")
    THREE(15, "vsub2.s32.u32.s32.sat %0, %1, %2, %3")
    THREE(16, "vsub2.u32.s32.u32 %0, %1, %2, %3")
    THREE(17, "vsub2.u32.s32.u32.sat %0, %1, %2, %3")
    THREE(18, "vsub2.s32.s32.s32.add %0, %1, %2, %3")
    THREE(19, "vsub2.u32.u32.u32.add %0, %1, %2, %3")
    THREE(20, "vavrg2.u32.u32.u32 %0, %1, %2, %3")
    THREE(21, "vavrg2.u32.u32.u32.sat %0, %1, %2, %3")
    THREE(22, "vavrg2.s32.s32.s32 %0, %1, %2, %3")
    THREE(23, "vavrg2.s32.s32.s32.sat %0, %1, %2, %3")
    THREE(24, "vavrg2.s32.u32.s32 %0, %1, %2, %3")
    THREE(25, "vavrg2.s32.u32.s32.sat %0, %1, %2, %3")
    THREE(26, "vavrg2.u32.s32.u32 %0, %1, %2, %3")
    THREE(27, "vavrg2.u32.s32.u32.sat %0, %1, %2, %3")
    THREE(28, "vavrg2.s32.s32.s32.add %0, %1, %2, %3")
    THREE(29, "vavrg2.u32.u32.u32.add %0, %1, %2, %3")
    THREE(30, "vabsdiff2.u32.u32.u32 %0, %1, %2, %3")
    THREE(31, "vabsdiff2.u32.u32.u32.sat %0, %1, %2, %3")
    THREE(32, "vabsdiff2.s32.s32.s32 %0, %1, %2, %3")
    THREE(33, "vabsdiff2.s32.s32.s32.sat %0, %1, %2, %3")
    THREE(34, "vabsdiff2.s32.u32.s32 %0, %1, %2, %3")
    THREE(35, "vabsdiff2.s32.u32.s32.sat %0, %1, %2, %3")
    THREE(36, "vabsdiff2.u32.s32.u32 %0, %1, %2, %3")
    THREE(37, "vabsdiff2.u32.s32.u32.sat %0, %1, %2, %3")
    THREE(38, "vabsdiff2.s32.s32.s32.add %0, %1, %2, %3")
    THREE(39, "vabsdiff2.u32.u32.u32.add %0, %1, %2, %3")
    THREE(40, "vmin2.u32.u32.u32 %0, %1, %2, %3")
    THREE(41, "vmin2.u32.u32.u32.sat %0, %1, %2, %3")
    THREE(42, "vmin2.s32.s32.s32 %0, %1, %2, %3")
    THREE(43, "vmin2.s32.s32.s32.sat %0, %1, %2, %3")
    THREE(44, "vmin2.s32.u32.s32 %0, %1, %2, %3")
    THREE(45, "vmin2.s32.u32.s32.sat %0, %1, %2, %3")
    THREE(46, "vmin2.u32.s32.u32 %0, %1, %2, %3")
    THREE(47, "vmin2.u32.s32.u32.sat %0, %1, %2, %3")
    THREE(48, "vmin2.s32.s32.s32.add %0, %1, %2, %3")
    THREE(49, "vmin2.u32.u32.u32.add %0, %1, %2, %3")
    THREE(50, "vmax2.u32.u32.u32 %0, %1, %2, %3")
    THREE(51, "vmax2.u32.u32.u32.sat %0, %1, %2, %3")
    THREE(52, "vmax2.s32.s32.s32 %0, %1, %2, %3")
    THREE(53, "vmax2.s32.s32.s32.sat %0, %1, %2, %3")
    THREE(54, "vmax2.s32.u32.s32 %0, %1, %2, %3")
    THREE(55, "vmax2.s32.u32.s32.sat %0, %1, %2, %3")
    THREE(56, "vmax2.u32.s32.u32 %0, %1, %2, %3")
    THREE(57, "vmax2.u32.s32.u32.sat %0, %1, %2, %3")
    THREE(58, "vmax2.s32.s32.s32.add %0, %1, %2, %3")
    THREE(59, "vmax2.u32.u32.u32.add %0, %1, %2, %3")
    THREE(60, "vset2.s32.s32.eq %0, %1, %2, %3")
    THREE(61, "vset2.s32.s32.lt %0, %1, %2, %3")
    THREE(62, "vset2.s32.s32.ge %0, %1, %2, %3")
    THREE(63, "vset2.u32.u32.eq %0, %1, %2, %3")
    THREE(64, "vset2.u32.u32.lt %0, %1, %2, %3")
    THREE(65, "vset2.u32.u32.ge %0, %1, %2, %3")
    THREE(66, "vset2.s32.u32.eq %0, %1, %2, %3")
    THREE(67, "vset2.s32.u32.lt %0, %1, %2, %3")
    THREE(68, "vset2.s32.u32.ge %0, %1, %2, %3")
    THREE(69, "vset2.s32.s32.gt.add %0, %1, %2, %3")
}
