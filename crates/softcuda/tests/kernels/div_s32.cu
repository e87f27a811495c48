// Division and remainder of 32 bits, by zero and of the smallest number by -1 too.
// launch: div_s32 grid 4 block 100
// arg: out u32 1600
// arg: in u32 400 corners slow
// arg: in u32 400 corners

#define OP(k, text)                                               \
    {                                                             \
        unsigned d;                                               \
        asm volatile(text " %0, %1, %2;" : "=r"(d) : "r"(x), "r"(y)); \
        out[(k) * 400 + i] = d;                                     \
    }

extern "C" __global__ void div_s32(unsigned *out, const unsigned *a, const unsigned *b) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, x = a[i], y = b[i];
    OP(0, "div.s32")
    OP(1, "div.u32")
    OP(2, "rem.s32")
    OP(3, "rem.u32")
}
