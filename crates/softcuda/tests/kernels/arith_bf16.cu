// Arithmetic of bf16, single and in pairs.
// launch: arith_bf16 grid 4 block 100
// arg: out u16 2000
// arg: out u32 2000
// arg: in bf16 400 corners slow
// arg: in bf16 400 corners
// arg: in bf16 400 corners random 50

#define TWO(k, text)                                                  \
    {                                                                 \
        unsigned short d;                                             \
        asm volatile(text " %0, %1, %2;" : "=h"(d) : "h"(x), "h"(y)); \
        out[(k) * 400 + i] = d;                                         \
    }
#define THREE(k, text)                                                            \
    {                                                                             \
        unsigned short d;                                                         \
        asm volatile(text " %0, %1, %2, %3;" : "=h"(d) : "h"(x), "h"(y), "h"(z)); \
        out[(k) * 400 + i] = d;                                                     \
    }
#define PAIR(k, text)                                                                          \
    {                                                                                          \
        unsigned d;                                                                            \
        asm volatile(text : "=r"(d) : "r"(x | z << 16), "r"(y | x << 16), "r"(z | y << 16));   \
        pairs[(k) * 400 + i] = d;                                                                \
    }

extern "C" __global__ void arith_bf16(unsigned short *out, unsigned *pairs, const unsigned short *a,
                                      const unsigned short *b, const unsigned short *c) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned short x = a[i], y = b[i], z = c[i];
    TWO(0, "add.bf16")
    TWO(1, "sub.rn.bf16")
    TWO(2, "mul.bf16")
    THREE(3, "fma.rn.bf16")
    THREE(4, "fma.rn.relu.bf16")
    PAIR(0, "add.bf16x2 %0, %1, %2;")
    PAIR(1, "sub.bf16x2 %0, %1, %2;")
    PAIR(2, "mul.bf16x2 %0, %1, %2;")
    PAIR(3, "fma.rn.bf16x2 %0, %1, %2, %3;")
    PAIR(4, "min.NaN.bf16x2 %0, %1, %2;")
}
