// Pairs of f16: every combination of rounding, flushing, saturation and relu.
// launch: packed_f16x2 grid 4 block 100
// arg: out u32 6800
// arg: in f16x2 400 corners slow
// arg: in f16x2 400 corners
// arg: in f16x2 400 corners random 91

#define TWO(k, text)                                                  \
    {                                                                 \
        unsigned d;                                                   \
        asm volatile(text " %0, %1, %2;" : "=r"(d) : "r"(x), "r"(y)); \
        out[(k) * 400 + i] = d;                                       \
    }
#define THREE(k, text)                                                            \
    {                                                                             \
        unsigned d;                                                               \
        asm volatile(text " %0, %1, %2, %3;" : "=r"(d) : "r"(x), "r"(y), "r"(z)); \
        out[(k) * 400 + i] = d;                                                   \
    }

extern "C" __global__ void packed_f16x2(unsigned *out, const unsigned *a, const unsigned *b, const unsigned *c) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, x = a[i], y = b[i], z = c[i];
    TWO(0, "add.sat.f16x2")
    TWO(1, "add.ftz.f16x2")
    TWO(2, "add.rn.ftz.sat.f16x2")
    TWO(3, "sub.f16x2")
    TWO(4, "sub.rn.f16x2")
    TWO(5, "mul.sat.f16x2")
    TWO(6, "mul.ftz.sat.f16x2")
    TWO(7, "min.ftz.f16x2")
    TWO(8, "min.NaN.f16x2")
    TWO(9, "min.ftz.NaN.f16x2")
    TWO(10, "max.f16x2")
    TWO(11, "max.ftz.f16x2")
    TWO(12, "min.xorsign.abs.f16x2")
    TWO(13, "max.NaN.xorsign.abs.f16x2")
    THREE(14, "fma.rn.sat.f16x2")
    THREE(15, "fma.rn.ftz.f16x2")
    THREE(16, "fma.rn.ftz.relu.f16x2")
}
