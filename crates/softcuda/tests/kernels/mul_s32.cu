// Multiplication of 32 bits: low half, high half, whole.
// launch: mul_s32 grid 4 block 100
// arg: out u32 1600
// arg: out u64 800
// arg: in u32 400 corners slow
// arg: in u32 400 corners

#define OP(k, text)                                               \
    {                                                             \
        unsigned d;                                               \
        asm volatile(text " %0, %1, %2;" : "=r"(d) : "r"(x), "r"(y)); \
        out[(k) * 400 + i] = d;                                     \
    }
#define WIDE(k, text)                                             \
    {                                                             \
        unsigned long long d;                                     \
        asm volatile(text " %0, %1, %2;" : "=l"(d) : "r"(x), "r"(y)); \
        wide[(k) * 400 + i] = d;                                    \
    }

extern "C" __global__ void mul_s32(unsigned *out, unsigned long long *wide, const unsigned *a, const unsigned *b) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, x = a[i], y = b[i];
    OP(0, "mul.lo.s32")
    OP(1, "mul.lo.u32")
    OP(2, "mul.hi.s32")
    OP(3, "mul.hi.u32")
    WIDE(0, "mul.wide.s32")
    WIDE(1, "mul.wide.u32")
}
