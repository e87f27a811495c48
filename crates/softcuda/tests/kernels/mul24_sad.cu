// mul24 and mad24 of the low 24 bits, and sums of absolute differences.
// launch: mul24_sad grid 4 block 100
// arg: out u32 4000
// arg: out u64 800
// arg: in u32 400 corners slow
// arg: in u32 400 corners
// arg: in u32 400 corners random 15

#define TWO(k, text)                                                  \
    {                                                                 \
        unsigned d;                                                   \
        asm volatile(text " %0, %1, %2;" : "=r"(d) : "r"(x), "r"(y)); \
        out[(k) * 400 + i] = d;                                         \
    }
#define THREE(k, text)                                                            \
    {                                                                             \
        unsigned d;                                                               \
        asm volatile(text " %0, %1, %2, %3;" : "=r"(d) : "r"(x), "r"(y), "r"(z)); \
        out[(k) * 400 + i] = d;                                                     \
    }
#define WIDE(k, text)                                                                                      \
    {                                                                                                      \
        unsigned long long d, m = (unsigned long long)x << 17 | y, n = (unsigned long long)y << 31 | z;    \
        asm volatile(text " %0, %1, %2, %3;" : "=l"(d) : "l"(m), "l"(n), "l"(m + n));                      \
        wide[(k) * 400 + i] = d;                                                                             \
    }

extern "C" __global__ void mul24_sad(unsigned *out, unsigned long long *wide, const unsigned *a, const unsigned *b,
                                     const unsigned *c) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, x = a[i], y = b[i], z = c[i];
    TWO(0, "mul24.lo.s32")
    TWO(1, "mul24.lo.u32")
    TWO(2, "mul24.hi.s32")
    TWO(3, "mul24.hi.u32")
    THREE(4, "mad24.lo.s32")
    THREE(5, "mad24.lo.u32")
    THREE(6, "mad24.hi.s32")
    THREE(7, "mad24.hi.u32")
    THREE(8, "sad.s32")
    THREE(9, "sad.u32")
    WIDE(0, "sad.s64")
    WIDE(1, "sad.u64")
}
