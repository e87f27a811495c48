// Bitwise instructions of every width, and of predicates.
// launch: logic grid 4 block 100
// arg: out u32 1200
// arg: out u64 1200
// arg: out u16 1200
// arg: out u32 1600
// arg: in u32 400 corners slow
// arg: in u32 400 corners
// arg: in u64 400 corners slow
// arg: in u64 400 corners

#define OP(k, text)                                               \
    {                                                             \
        unsigned d;                                               \
        asm volatile(text " %0, %1, %2;" : "=r"(d) : "r"(x), "r"(y)); \
        out[(k) * 400 + i] = d;                                     \
    }
#define WIDE(k, text)                                             \
    {                                                             \
        unsigned long long d;                                     \
        asm volatile(text " %0, %1, %2;" : "=l"(d) : "l"(v), "l"(w)); \
        wide[(k) * 400 + i] = d;                                    \
    }
#define NARROW(k, text)                                                                           \
    {                                                                                             \
        unsigned short d;                                                                         \
        asm volatile(text " %0, %1, %2;" : "=h"(d) : "h"((unsigned short)x), "h"((unsigned short)y)); \
        narrow[(k) * 400 + i] = d;                                                                  \
    }
#define PRED(k, text)                                                                             \
    {                                                                                             \
        unsigned d;                                                                               \
        asm volatile("{.reg .pred p, q, r; setp.lt.s32 p, %1, 16; setp.gt.u32 q, %2, 16; " text   \
                     " selp.u32 %0, 1, 0, r;}"                                                    \
                     : "=r"(d)                                                                    \
                     : "r"(x), "r"(y));                                                           \
        pred[(k) * 400 + i] = d;                                                                    \
    }

extern "C" __global__ void logic(unsigned *out, unsigned long long *wide, unsigned short *narrow, unsigned *pred,
                                 const unsigned *a, const unsigned *b, const unsigned long long *c,
                                 const unsigned long long *e) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, x = a[i], y = b[i];
    unsigned long long v = c[i], w = e[i];
    OP(0, "and.b32")
    OP(1, "or.b32")
    OP(2, "xor.b32")
    WIDE(0, "and.b64")
    WIDE(1, "or.b64")
    WIDE(2, "xor.b64")
    NARROW(0, "and.b16")
    NARROW(1, "or.b16")
    NARROW(2, "xor.b16")
    PRED(0, "and.pred r, p, q;")
    PRED(1, "or.pred r, p, q;")
    PRED(2, "xor.pred r, p, q;")
    PRED(3, "not.pred r, p;")
}
