// redux: sum, smallest, largest and bits of a warp's words at once; of a part of it as well.
// launch: redux grid 1 block 64
// arg: out u32 1024
// arg: in u32 64 noise 62

#define OP(k, text)                                                                       \
    {                                                                                     \
        unsigned d;                                                                       \
        asm volatile("redux.sync." text " %0, %1, %2;" : "=r"(d) : "r"(x), "r"(mask));    \
        out[(k) * 64 + i] = d;                                                              \
    }
extern "C" __global__ void redux(unsigned *out, const unsigned *in) {
    unsigned i = threadIdx.x, x = in[i], mask = 0xffffffff, d;
    OP(0, "add.u32")
    OP(1, "add.s32")
    OP(2, "min.u32")
    OP(3, "min.s32")
    OP(4, "max.u32")
    OP(5, "max.s32")
    OP(6, "and.b32")
    OP(7, "or.b32")
    OP(8, "xor.b32")
    x |= 0x10;
    OP(9, "and.b32")
    x = 1u << i % 8;
    OP(10, "or.b32")
    asm volatile("activemask.b32 %0;" : "=r"(d));
    out[11 * 64 + i] = d;
    if (i % 2) {
        mask = 0xaaaaaaaa;
        OP(12, "add.u32")
        OP(13, "max.u32")
    } else {
        mask = 0x55555555;
        OP(14, "xor.b32")
        OP(15, "min.s32")
    }
}
