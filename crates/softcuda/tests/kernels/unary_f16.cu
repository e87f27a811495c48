// Instructions of one operand of f16, bf16 and pairs of them, whose bits are fixed.
// launch: unary_f16 grid 1 block 20
// arg: out u32 240
// arg: in f16 20 corners
// arg: in bf16 20 corners
// arg: in f16x2 20 corners
// arg: in bf16x2 20 corners

#define HALF(k, text, x)                                  \
    {                                                     \
        unsigned short d;                                 \
        asm volatile(text " %0, %1;" : "=h"(d) : "h"(x)); \
        out[(k) * 20 + i] = d;                              \
    }
#define PAIR(k, text, x)                                  \
    {                                                     \
        unsigned d;                                       \
        asm volatile(text " %0, %1;" : "=r"(d) : "r"(x)); \
        out[(k) * 20 + i] = d;                              \
    }

extern "C" __global__ void unary_f16(unsigned *out, const unsigned short *a, const unsigned short *b,
                                     const unsigned *c, const unsigned *e) {
    unsigned i = threadIdx.x;
    HALF(0, "neg.f16", a[i])
    HALF(1, "abs.f16", a[i])
    HALF(2, "neg.ftz.f16", a[i])
    HALF(3, "abs.ftz.f16", a[i])
    HALF(4, "neg.bf16", b[i])
    HALF(5, "abs.bf16", b[i])
    PAIR(6, "neg.f16x2", c[i])
    PAIR(7, "abs.f16x2", c[i])
    PAIR(8, "neg.ftz.f16x2", c[i])
    PAIR(9, "abs.ftz.f16x2", c[i])
    PAIR(10, "neg.bf16x2", e[i])
    PAIR(11, "abs.bf16x2", e[i])
}
