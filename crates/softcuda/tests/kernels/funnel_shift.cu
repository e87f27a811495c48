// shf: two words shifted as one, with the amount clamped or wrapped.
// launch: funnel_shift grid 4 block 100
// arg: out u32 1600
// arg: in u32 400 corners slow
// arg: in u32 400 random 5
// arg: in u32 400 corners

#define OP(k, text)                                                                \
    {                                                                              \
        unsigned d;                                                                \
        asm volatile(text " %0, %1, %2, %3;" : "=r"(d) : "r"(x), "r"(y), "r"(by)); \
        out[(k) * 400 + i] = d;                                                      \
    }

extern "C" __global__ void funnel_shift(unsigned *out, const unsigned *a, const unsigned *b, const unsigned *amounts) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, x = a[i], y = b[i], by = amounts[i];
    OP(0, "shf.l.clamp.b32")
    OP(1, "shf.l.wrap.b32")
    OP(2, "shf.r.clamp.b32")
    OP(3, "shf.r.wrap.b32")
}
