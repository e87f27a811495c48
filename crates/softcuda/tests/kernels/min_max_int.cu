// Smaller and larger of two integers, signed and unsigned.
// launch: min_max_int grid 4 block 100
// arg: out u32 1600
// arg: out u64 1600
// arg: in u32 400 corners slow
// arg: in u32 400 corners
// arg: in u64 400 corners slow
// arg: in u64 400 corners

#define OP(k, text)                                               \
    {                                                             \
        unsigned d;                                               \
        asm volatile(text " %0, %1, %2;" : "=r"(d) : "r"(x), "r"(y)); \
        out[(k) * 400 + i] = d;                                     \
    }
#define WIDE(k, text)                                             \
    {                                                             \
        unsigned long long d;                                     \
        asm volatile(text " %0, %1, %2;" : "=l"(d) : "l"(v), "l"(w)); \
        wide[(k) * 400 + i] = d;                                    \
    }

extern "C" __global__ void min_max_int(unsigned *out, unsigned long long *wide, const unsigned *a, const unsigned *b,
                                       const unsigned long long *c, const unsigned long long *e) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, x = a[i], y = b[i];
    unsigned long long v = c[i], w = e[i];
    OP(0, "min.s32")
    OP(1, "max.s32")
    OP(2, "min.u32")
    OP(3, "max.u32")
    WIDE(0, "min.s64")
    WIDE(1, "max.s64")
    WIDE(2, "min.u64")
    WIDE(3, "max.u64")
}
