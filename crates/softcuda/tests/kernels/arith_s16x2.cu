// Pairs of 16-bit integers in one word: sums, smaller and larger, with the negative cut off.
// launch: arith_s16x2 grid 4 block 100
// arg: out u32 4000
// arg: in u32 400 corners slow
// arg: in u32 400 corners

#define OP(k, text)                                                   \
    {                                                                 \
        unsigned d;                                                   \
        asm volatile(text " %0, %1, %2;" : "=r"(d) : "r"(x), "r"(y)); \
        out[(k) * 400 + i] = d;                                         \
    }

extern "C" __global__ void arith_s16x2(unsigned *out, const unsigned *a, const unsigned *b) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, x = a[i] * 0x10003, y = b[i] * 0x8001;
    OP(0, "add.u16x2")
    OP(1, "add.s16x2")
    OP(2, "min.s16x2")
    OP(3, "max.s16x2")
    OP(4, "min.u16x2")
    OP(5, "max.u16x2")
    OP(6, "min.relu.s16x2")
    OP(7, "max.relu.s16x2")
    OP(8, "min.relu.s32")
    OP(9, "max.relu.s32")
}
