// prmt: bytes of two words in a new order, with the sign copied, and in its six named modes.
// launch: prmt grid 1 block 128
// arg: out u32 896
// arg: in u32 128 random 10
// arg: in u32 128 random 11
// arg: in u32 128 random 12

#define OP(k, text)                                                                  \
    {                                                                                \
        unsigned d;                                                                  \
        asm volatile(text " %0, %1, %2, %3;" : "=r"(d) : "r"(x), "r"(y), "r"(order)); \
        out[(k) * 128 + i] = d;                                                        \
    }

extern "C" __global__ void prmt(unsigned *out, const unsigned *a, const unsigned *b, const unsigned *c) {
    unsigned i = threadIdx.x, x = a[i], y = b[i], order = c[i];
    OP(0, "prmt.b32")
    OP(1, "prmt.b32.f4e")
    OP(2, "prmt.b32.b4e")
    OP(3, "prmt.b32.rc8")
    OP(4, "prmt.b32.ecl")
    OP(5, "prmt.b32.ecr")
    OP(6, "prmt.b32.rc16")
}
