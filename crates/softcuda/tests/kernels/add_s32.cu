// Integer addition and subtraction of 32 bits: wrapping, and saturating for .sat.s32.
// launch: add_s32 grid 4 block 100
// arg: out u32 2400
// arg: in u32 400 corners slow
// arg: in u32 400 corners

#define OP(k, text)                                               \
    {                                                             \
        unsigned d;                                               \
        asm volatile(text " %0, %1, %2;" : "=r"(d) : "r"(x), "r"(y)); \
        out[(k) * 400 + i] = d;                                     \
    }

extern "C" __global__ void add_s32(unsigned *out, const unsigned *a, const unsigned *b) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, x = a[i], y = b[i];
    OP(0, "add.s32")
    OP(1, "add.u32")
    OP(2, "add.sat.s32")
    OP(3, "sub.s32")
    OP(4, "sub.u32")
    OP(5, "sub.sat.s32")
}
