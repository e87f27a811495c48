// add.cc, addc, sub.cc, subc, mad.cc and madc: the carry that goes from one instruction to the next.
// launch: carry grid 4 block 100
// arg: out u32 3600
// arg: out u64 1600
// arg: in u32 400 corners slow
// arg: in u32 400 corners
// arg: in u64 400 corners slow
// arg: in u64 400 corners

#define TWO(k, first, second)                                                                       \
    {                                                                                               \
        unsigned d, e;                                                                              \
        asm volatile(first " %0, %2, %3;\n\t" second " %1, %3, %2;" : "=r"(d), "=r"(e) : "r"(x), "r"(y)); \
        out[(k) * 800 + i] = d;                                                                       \
        out[(k) * 800 + 400 + i] = e;                                                                 \
    }
#define WIDE(k, first, second)                                                                      \
    {                                                                                               \
        unsigned long long d, e;                                                                    \
        asm volatile(first " %0, %2, %3;\n\t" second " %1, %3, %2;" : "=l"(d), "=l"(e) : "l"(v), "l"(w)); \
        wide[(k) * 800 + i] = d;                                                                      \
        wide[(k) * 800 + 400 + i] = e;                                                                \
    }

extern "C" __global__ void carry(unsigned *out, unsigned long long *wide, const unsigned *a, const unsigned *b,
                                 const unsigned long long *c, const unsigned long long *e) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, x = a[i], y = b[i];
    unsigned long long v = c[i], w = e[i];
    TWO(0, "add.cc.u32", "addc.u32")
    TWO(1, "sub.cc.u32", "subc.u32")
    TWO(2, "add.cc.s32", "addc.cc.s32")
    TWO(3, "sub.cc.s32", "subc.cc.s32")
    {
        unsigned low, middle, high;
        asm volatile(
            "mad.lo.cc.u32 %0, %3, %4, %3;\n\tmadc.hi.cc.u32 %1, %3, %4, %4;\n\tmadc.lo.u32 %2, %3, %3, %4;"
            : "=r"(low), "=r"(middle), "=r"(high)
            : "r"(x), "r"(y));
        out[3200 + i] = low ^ middle * 3 ^ high * 5;
    }
    WIDE(0, "add.cc.u64", "addc.u64")
    WIDE(1, "sub.cc.u64", "subc.u64")
}
