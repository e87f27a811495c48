// Smaller and larger of f16 and bf16, and their comparisons.
// launch: min_max_f16 grid 4 block 100
// arg: out u16 4000
// arg: out u32 400
// arg: in f16 400 corners slow
// arg: in f16 400 corners
// arg: in bf16 400 corners slow
// arg: in bf16 400 corners

#define OP(k, text, m, n)                                             \
    {                                                                 \
        unsigned short d;                                             \
        asm volatile(text " %0, %1, %2;" : "=h"(d) : "h"(m), "h"(n)); \
        out[(k) * 400 + i] = d;                                         \
    }
#define BIT(k, text, m, n)                                                                \
    {                                                                                     \
        unsigned d;                                                                       \
        asm volatile("{.reg .pred p; setp." text " p, %1, %2; selp.u32 %0, 1, 0, p;}"     \
                     : "=r"(d)                                                            \
                     : "h"(m), "h"(n));                                                   \
        mask |= d << (k);                                                                   \
    }

extern "C" __global__ void min_max_f16(unsigned short *out, unsigned *masks, const unsigned short *a,
                                       const unsigned short *b, const unsigned short *c, const unsigned short *e) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, mask = 0;
    unsigned short x = a[i], y = b[i], u = c[i], v = e[i];
    OP(0, "min.f16", x, y)
    OP(1, "max.f16", x, y)
    OP(2, "min.ftz.f16", x, y)
    OP(3, "max.NaN.f16", x, y)
    OP(4, "min.xorsign.abs.f16", x, y)
    OP(5, "min.bf16", u, v)
    OP(6, "max.bf16", u, v)
    OP(7, "min.NaN.bf16", u, v)
    OP(8, "max.xorsign.abs.bf16", u, v)
    OP(9, "max.NaN.xorsign.abs.bf16", u, v)
    BIT(0, "eq.f16", x, y)
    BIT(1, "lt.f16", x, y)
    BIT(2, "geu.f16", x, y)
    BIT(3, "nan.f16", x, y)
    BIT(4, "ne.ftz.f16", x, y)
    BIT(5, "neu.f16", x, y)
    BIT(6, "eq.bf16", u, v)
    BIT(7, "gt.bf16", u, v)
    BIT(8, "leu.bf16", u, v)
    BIT(9, "num.bf16", u, v)
    masks[i] = mask;
}
