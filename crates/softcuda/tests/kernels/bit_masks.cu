// bmsk, szext and fns: masks, sign extension from any width, and the n-th set bit.
// launch: bit_masks grid 4 block 100
// arg: out u32 2800
// arg: in u32 400 corners slow
// arg: in u32 400 corners

#define OP(k, text)                                                   \
    {                                                                 \
        unsigned d;                                                   \
        asm volatile(text " %0, %1, %2;" : "=r"(d) : "r"(x), "r"(y)); \
        out[(k) * 400 + i] = d;                                         \
    }

extern "C" __global__ void bit_masks(unsigned *out, const unsigned *a, const unsigned *b) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, x = a[i], y = b[i], d;
    OP(0, "bmsk.clamp.b32")
    OP(1, "bmsk.wrap.b32")
    OP(2, "szext.clamp.s32")
    OP(3, "szext.wrap.s32")
    OP(4, "szext.clamp.u32")
    OP(5, "szext.wrap.u32")
    asm volatile("fns.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(x), "r"(y % 32), "r"((int)(i % 7) - 3));
    out[2400 + i] = d;
}
