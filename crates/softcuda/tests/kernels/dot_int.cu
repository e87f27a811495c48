// dp4a and dp2a: products of bytes summed into a word, signed and unsigned, and their 16-bit kin.
// launch: dot_int grid 1 block 64
// arg: out u32 640
// arg: in u32 64 noise 113
// arg: in u32 64 noise 114
// arg: in u32 64 corners

#define OP(k, text)                                                               \
    {                                                                             \
        unsigned d;                                                               \
        asm volatile(text " %0, %1, %2, %3;" : "=r"(d) : "r"(x), "r"(y), "r"(z)); \
        out[(k) * 64 + i] = d;                                                      \
    }

extern "C" __global__ void dot_int(unsigned *out, const unsigned *a, const unsigned *b, const unsigned *c) {
    unsigned i = threadIdx.x, x = a[i], y = b[i], z = c[i];
    OP(0, "dp4a.u32.u32")
    OP(1, "dp4a.s32.s32")
    OP(2, "dp4a.u32.s32")
    OP(3, "dp4a.s32.u32")
    OP(4, "dp2a.lo.u32.u32")
    OP(5, "dp2a.hi.u32.u32")
    OP(6, "dp2a.lo.s32.s32")
    OP(7, "dp2a.hi.s32.s32")
    OP(8, "dp2a.lo.s32.u32")
    OP(9, "dp2a.hi.u32.s32")
}
