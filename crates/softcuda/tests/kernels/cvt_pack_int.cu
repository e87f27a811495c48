// cvt.pack: two integers saturated to a half of a word, or to bytes below what is there.
// launch: cvt_pack_int grid 4 block 100
// arg: out u32 2800
// arg: in u32 400 corners slow
// arg: in u32 400 corners

#define TWO(k, text)                                                  \
    {                                                                 \
        unsigned d;                                                   \
        asm volatile(text " %0, %1, %2;" : "=r"(d) : "r"(x), "r"(y)); \
        out[(k) * 400 + i] = d;                                         \
    }
#define THREE(k, text)                                                                      \
    {                                                                                       \
        unsigned d;                                                                         \
        asm volatile(text " %0, %1, %2, %3;" : "=r"(d) : "r"(x), "r"(y), "r"(0x12345678)); \
        out[(k) * 400 + i] = d;                                                               \
    }

extern "C" __global__ void cvt_pack_int(unsigned *out, const unsigned *a, const unsigned *b) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, x = a[i], y = b[i];
    TWO(0, "cvt.pack.sat.s16.s32")
    TWO(1, "cvt.pack.sat.u16.s32")
    THREE(2, "cvt.pack.sat.s8.s32.b32")
    THREE(3, "cvt.pack.sat.u8.s32.b32")
    THREE(4, "cvt.pack.sat.u4.s32.b32")
    THREE(5, "cvt.pack.sat.s4.s32.b32")
    THREE(6, "cvt.pack.sat.u2.s32.b32")
}
