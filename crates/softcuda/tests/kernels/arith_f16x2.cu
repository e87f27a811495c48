// Arithmetic of pairs of f16: each half by itself.
// launch: arith_f16x2 grid 4 block 100
// arg: out u32 4000
// arg: in f16x2 400 corners slow
// arg: in f16x2 400 corners
// arg: in f16x2 400 corners random 49

#define TWO(k, text)                                                  \
    {                                                                 \
        unsigned d;                                                   \
        asm volatile(text " %0, %1, %2;" : "=r"(d) : "r"(x), "r"(y)); \
        out[(k) * 400 + i] = d;                                         \
    }
#define THREE(k, text)                                                            \
    {                                                                             \
        unsigned d;                                                               \
        asm volatile(text " %0, %1, %2, %3;" : "=r"(d) : "r"(x), "r"(y), "r"(z)); \
        out[(k) * 400 + i] = d;                                                     \
    }

extern "C" __global__ void arith_f16x2(unsigned *out, const unsigned *a, const unsigned *b, const unsigned *c) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, x = a[i], y = b[i], z = c[i];
    TWO(0, "add.f16x2")
    TWO(1, "sub.ftz.sat.f16x2")
    TWO(2, "mul.rn.f16x2")
    TWO(3, "mul.ftz.f16x2")
    TWO(4, "min.f16x2")
    TWO(5, "max.NaN.f16x2")
    THREE(6, "fma.rn.f16x2")
    THREE(7, "fma.rn.relu.f16x2")
    THREE(8, "fma.rn.ftz.sat.f16x2")
    TWO(9, "max.xorsign.abs.f16x2")
}
