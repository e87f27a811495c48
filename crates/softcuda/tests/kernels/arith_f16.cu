// Arithmetic of f16.
// launch: arith_f16 grid 4 block 100
// arg: out u16 4000
// arg: in f16 400 corners slow
// arg: in f16 400 corners
// arg: in f16 400 corners random 48

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

extern "C" __global__ void arith_f16(unsigned short *out, const unsigned short *a, const unsigned short *b,
                                     const unsigned short *c) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned short x = a[i], y = b[i], z = c[i];
    TWO(0, "add.f16")
    TWO(1, "add.ftz.sat.f16")
    TWO(2, "sub.rn.f16")
    TWO(3, "mul.f16")
    TWO(4, "mul.ftz.f16")
    TWO(5, "mul.sat.f16")
    THREE(6, "fma.rn.f16")
    THREE(7, "fma.rn.ftz.f16")
    THREE(8, "fma.rn.sat.f16")
    THREE(9, "fma.rn.relu.f16")
}
