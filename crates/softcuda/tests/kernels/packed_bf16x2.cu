// Pairs of bf16: sums, products, the smaller and the larger, with relu.
// launch: packed_bf16x2 grid 4 block 100
// arg: out u32 5600
// arg: in bf16x2 400 corners slow
// arg: in bf16x2 400 corners
// arg: in bf16x2 400 corners random 91

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

extern "C" __global__ void packed_bf16x2(unsigned *out, const unsigned *a, const unsigned *b, const unsigned *c) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, x = a[i], y = b[i], z = c[i];
    TWO(0, "add.bf16x2")
    TWO(1, "add.rn.bf16x2")
    TWO(2, "sub.bf16x2")
    TWO(3, "sub.rn.bf16x2")
    TWO(4, "mul.bf16x2")
    TWO(5, "mul.rn.bf16x2")
    TWO(6, "min.bf16x2")
    TWO(7, "min.NaN.bf16x2")
    TWO(8, "max.bf16x2")
    TWO(9, "max.NaN.bf16x2")
    TWO(10, "min.xorsign.abs.bf16x2")
    TWO(11, "max.NaN.xorsign.abs.bf16x2")
    THREE(12, "fma.rn.bf16x2")
    THREE(13, "fma.rn.relu.bf16x2")
}
