// set and setp of f16 and bf16, single and in pairs.
// launch: set_f16 grid 4 block 100
// arg: out u32 3200
// arg: in f16x2 400 corners slow
// arg: in f16x2 400 corners
// arg: in bf16x2 400 corners slow
// arg: in bf16x2 400 corners

#define PAIR(k, text, m, n)                                           \
    {                                                                 \
        unsigned d;                                                   \
        asm volatile(text " %0, %1, %2;" : "=r"(d) : "r"(m), "r"(n)); \
        out[(k) * 400 + i] = d;                                         \
    }
#define HALF(k, text, m, n)                                                                             \
    {                                                                                                   \
        unsigned short d;                                                                               \
        asm volatile(text " %0, %1, %2;" : "=h"(d) : "h"((unsigned short)m), "h"((unsigned short)n));   \
        out[(k) * 400 + i] = d;                                                                           \
    }
#define TWO(k, text, m, n)                                                                                      \
    {                                                                                                           \
        unsigned d;                                                                                             \
        asm volatile("{.reg .pred p, q; .reg .u32 t; setp." text " p|q, %1, %2; selp.u32 %0, 1, 0, p; "         \
                     "selp.u32 t, 2, 0, q; or.b32 %0, %0, t;}"                                                  \
                     : "=r"(d)                                                                                  \
                     : "r"(m), "r"(n));                                                                         \
        out[(k) * 400 + i] = d;                                                                                   \
    }

extern "C" __global__ void set_f16(unsigned *out, const unsigned *a, const unsigned *b, const unsigned *c,
                                   const unsigned *e) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, x = a[i], y = b[i], u = c[i], v = e[i];
    PAIR(0, "set.lt.f16x2.f16x2", x, y)
    PAIR(1, "set.neu.f16x2.f16x2", x, y)
    PAIR(2, "set.ge.bf16x2.bf16x2", u, v)
    PAIR(3, "set.leu.u32.f16x2", x, y)
    PAIR(4, "set.nan.u32.bf16x2", u, v)
    HALF(5, "set.gtu.u16.f16", x, y)
    TWO(6, "lt.f16x2", x, y)
    TWO(7, "geu.bf16x2", u, v)
}
