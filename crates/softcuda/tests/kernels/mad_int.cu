// mad of integers: low and high half, wide, of every width.
// launch: mad_int grid 4 block 100
// arg: out u32 1600
// arg: out u64 2000
// arg: out u16 800
// arg: in u32 400 corners slow
// arg: in u32 400 corners
// arg: in u32 400 corners random 13
// arg: in u64 400 corners slow
// arg: in u64 400 corners
// arg: in u64 400 corners random 14

#define OP(k, text)                                                               \
    {                                                                             \
        unsigned d;                                                               \
        asm volatile(text " %0, %1, %2, %3;" : "=r"(d) : "r"(x), "r"(y), "r"(z)); \
        out[(k) * 400 + i] = d;                                                     \
    }
#define WIDE(k, text, letter, m, n)                                                         \
    {                                                                                       \
        unsigned long long d;                                                               \
        asm volatile(text " %0, %1, %2, %3;" : "=l"(d) : letter(m), letter(n), "l"(w)); \
        wide[(k) * 400 + i] = d;                                                              \
    }
#define NARROW(k, text)                                                           \
    {                                                                             \
        unsigned short d;                                                         \
        asm volatile(text " %0, %1, %2, %3;"                                      \
                     : "=h"(d)                                                    \
                     : "h"((unsigned short)x), "h"((unsigned short)y), "h"((unsigned short)z)); \
        narrow[(k) * 400 + i] = d;                                                  \
    }

extern "C" __global__ void mad_int(unsigned *out, unsigned long long *wide, unsigned short *narrow, const unsigned *a,
                                   const unsigned *b, const unsigned *c, const unsigned long long *e,
                                   const unsigned long long *f, const unsigned long long *g) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, x = a[i], y = b[i], z = c[i];
    unsigned long long u = e[i], v = f[i], w = g[i];
    OP(0, "mad.lo.s32")
    OP(1, "mad.lo.u32")
    OP(2, "mad.hi.s32")
    OP(3, "mad.hi.u32")
    WIDE(0, "mad.wide.s32", "r", x, y)
    WIDE(1, "mad.wide.u32", "r", x, y)
    WIDE(2, "mad.lo.s64", "l", u, v)
    WIDE(3, "mad.hi.s64", "l", u, v)
    WIDE(4, "mad.hi.u64", "l", u, v)
    NARROW(0, "mad.lo.s16")
    NARROW(1, "mad.hi.u16")
}
