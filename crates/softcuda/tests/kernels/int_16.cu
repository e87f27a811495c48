// Arithmetic of 16 bits. A division by zero is left out: its result of 16 bits is not fixed.
// launch: int_16 grid 4 block 100
// arg: out u16 4000
// arg: out u32 800
// arg: in u16 400 corners slow
// arg: in u16 400 corners

#define OP(k, text)                                               \
    {                                                             \
        unsigned short d;                                         \
        asm volatile(text " %0, %1, %2;" : "=h"(d) : "h"(x), "h"(y)); \
        out[(k) * 400 + i] = d;                                     \
    }
#define WIDE(k, text)                                             \
    {                                                             \
        unsigned d;                                               \
        asm volatile(text " %0, %1, %2;" : "=r"(d) : "h"(x), "h"(y)); \
        wide[(k) * 400 + i] = d;                                    \
    }

extern "C" __global__ void int_16(unsigned short *out, unsigned *wide, const unsigned short *a,
                                  const unsigned short *b) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned short x = a[i], y = b[i];
    OP(0, "add.s16")
    OP(1, "sub.u16")
    OP(2, "mul.lo.s16")
    OP(3, "mul.hi.s16")
    OP(4, "mul.hi.u16")
    OP(5, "min.s16")
    OP(6, "max.u16")
    WIDE(0, "mul.wide.s16")
    WIDE(1, "mul.wide.u16")
    if (y == 0) y = 7;
    OP(7, "div.u16")
    OP(8, "rem.s16")
    OP(9, "rem.u16")
}
