// match.any and match.all of words and of double words, with the predicate of match.all.
// launch: match grid 1 block 64
// arg: out u32 640
// arg: in u32 64 random 61

#define ANY(k, type, letter, x)                                                                        \
    {                                                                                                  \
        unsigned d;                                                                                    \
        asm volatile("match.any.sync." type " %0, %1, 0xffffffff;" : "=r"(d) : letter(x));             \
        out[(k) * 64 + i] = d;                                                                           \
    }
#define EVERY(k, type, letter, x)                                                                      \
    {                                                                                                  \
        unsigned d, p;                                                                                 \
        asm volatile("{.reg .pred q; match.all.sync." type " %0|q, %2, 0xffffffff; selp.u32 %1, 1, 0, q;}" \
                     : "=r"(d), "=r"(p)                                                                \
                     : letter(x));                                                                     \
        out[(k) * 64 + i] = d + p;                                                                       \
    }

extern "C" __global__ void match(unsigned *out, const unsigned *in) {
    unsigned i = threadIdx.x, x = in[i];
    unsigned long long y = (unsigned long long)(x % 3) << 40 | 5;
    ANY(0, "b32", "r", x % 5)
    ANY(1, "b32", "r", x)
    ANY(2, "b64", "l", y)
    ANY(3, "b32", "r", i / 8)
    EVERY(4, "b32", "r", 17u)
    EVERY(5, "b32", "r", i / 32)
    EVERY(6, "b32", "r", i)
    EVERY(7, "b64", "l", y)
    EVERY(8, "b64", "l", y | 3ull << 40)
    EVERY(9, "b32", "r", (unsigned)(i != 63))
}
