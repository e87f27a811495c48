// Instructions of one integer operand, of every width.
// launch: unary_int grid 1 block 20
// arg: out u32 240
// arg: out u64 240
// arg: out u16 120
// arg: in u32 20 corners
// arg: in u64 20 corners
// arg: in u16 20 corners

#define OP(k, text)                                       \
    {                                                     \
        unsigned d;                                       \
        asm volatile(text " %0, %1;" : "=r"(d) : "r"(x)); \
        out[(k) * 20 + i] = d;                              \
    }
#define WIDE(k, text)                                     \
    {                                                     \
        unsigned long long d;                             \
        asm volatile(text " %0, %1;" : "=l"(d) : "l"(y)); \
        wide[(k) * 20 + i] = d;                             \
    }
#define COUNT(k, text)                                    \
    {                                                     \
        unsigned d;                                       \
        asm volatile(text " %0, %1;" : "=r"(d) : "l"(y)); \
        wide[(k) * 20 + i] = d;                             \
    }
#define NARROW(k, text)                                   \
    {                                                     \
        unsigned short d;                                 \
        asm volatile(text " %0, %1;" : "=h"(d) : "h"(z)); \
        narrow[(k) * 20 + i] = d;                           \
    }

extern "C" __global__ void unary_int(unsigned *out, unsigned long long *wide, unsigned short *narrow,
                                     const unsigned *a, const unsigned long long *b, const unsigned short *c) {
    unsigned i = threadIdx.x, x = a[i];
    unsigned long long y = b[i];
    unsigned short z = c[i];
    OP(0, "neg.s32")
    OP(1, "abs.s32")
    OP(2, "not.b32")
    OP(3, "cnot.b32")
    OP(4, "brev.b32")
    OP(5, "clz.b32")
    OP(6, "popc.b32")
    OP(7, "bfind.s32")
    OP(8, "bfind.u32")
    OP(9, "bfind.shiftamt.s32")
    OP(10, "bfind.shiftamt.u32")
    OP(11, "mov.b32")
    WIDE(0, "neg.s64")
    WIDE(1, "abs.s64")
    WIDE(2, "not.b64")
    WIDE(3, "cnot.b64")
    WIDE(4, "brev.b64")
    COUNT(5, "clz.b64")
    COUNT(6, "popc.b64")
    COUNT(7, "bfind.s64")
    COUNT(8, "bfind.u64")
    COUNT(9, "bfind.shiftamt.s64")
    COUNT(10, "bfind.shiftamt.u64")
    WIDE(11, "mov.b64")
    NARROW(0, "neg.s16")
    NARROW(1, "abs.s16")
    NARROW(2, "not.b16")
    NARROW(3, "cnot.b16")
    NARROW(4, "mov.b16")
    NARROW(5, "mov.u16")
}
