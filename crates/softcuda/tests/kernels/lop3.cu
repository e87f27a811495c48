// lop3: a logical function of three words, by its table; with a predicate out as well.
// launch: lop3 grid 1 block 64
// arg: out u32 832
// arg: in u32 64 random 6
// arg: in u32 64 random 7
// arg: in u32 64 corners

#define OP(k, table)                                                                                \
    {                                                                                               \
        unsigned d;                                                                                 \
        asm volatile("lop3.b32 %0, %1, %2, %3, " #table ";" : "=r"(d) : "r"(x), "r"(y), "r"(z));    \
        out[(k) * 64 + i] = d;                                                                        \
    }
#define PRED(k, how, table)                                                                         \
    {                                                                                               \
        unsigned d, e;                                                                              \
        asm volatile("{.reg .pred p, q; setp.gt.s32 q, %4, 7; lop3." how                            \
                     ".b32 %0|p, %2, %3, %4, " #table ", q; selp.u32 %1, 1, 0, p;}"                 \
                     : "=r"(d), "=r"(e)                                                             \
                     : "r"(x), "r"(y), "r"(z));                                                     \
        out[(k) * 64 + i] = d ^ (e << 31);                                                            \
    }

extern "C" __global__ void lop3(unsigned *out, const unsigned *a, const unsigned *b, const unsigned *c) {
    unsigned i = threadIdx.x, x = a[i], y = b[i], z = c[i];
    OP(0, 0x00)
    OP(1, 0xff)
    OP(2, 0x80)
    OP(3, 0xfe)
    OP(4, 0x96)
    OP(5, 0xe8)
    OP(6, 0xca)
    OP(7, 0x1a)
    OP(8, 0x40)
    OP(9, 0x0f)
    OP(10, 0x33)
    PRED(11, "or", 0x80)
    PRED(12, "and", 0x01)
}
