// The four shuffles in segments of every width, with lanes out of range and the predicate that says so.
// launch: shfl_modes grid 1 block 32
// arg: out u32 2304
// arg: in u32 32 random 59

#define OP(k, mode, by, clamp)                                                                                  \
    {                                                                                                           \
        unsigned d, ok;                                                                                         \
        asm volatile("{.reg .pred p; shfl.sync." mode ".b32 %0|p, %2, %3, %4, 0xffffffff; selp.u32 %1, 1, 0, p;}" \
                     : "=r"(d), "=r"(ok)                                                                        \
                     : "r"(x), "r"(by), "r"(clamp));                                                            \
        out[2 * (k) * 32 + i] = d;                                                                                \
        out[(2 * (k) + 1) * 32 + i] = ok;                                                                         \
    }
#define SEGMENT(k, width)                                            \
    OP(k + 0, "up", 1, (32 - width) << 8)                            \
    OP(k + 1, "up", 5, (32 - width) << 8)                            \
    OP(k + 2, "down", 1, (32 - width) << 8 | 31)                     \
    OP(k + 3, "down", 7, (32 - width) << 8 | 31)                     \
    OP(k + 4, "bfly", 3, (32 - width) << 8 | 31)                     \
    OP(k + 5, "idx", 3, (32 - width) << 8 | 31)

extern "C" __global__ void shfl_modes(unsigned *out, const unsigned *in) {
    unsigned i = threadIdx.x, x = in[i];
    SEGMENT(0, 32)
    SEGMENT(6, 16)
    SEGMENT(12, 8)
    SEGMENT(18, 4)
    SEGMENT(24, 2)
    OP(30, "idx", x, 31)
    OP(31, "idx", i + 30, 12)
    OP(32, "bfly", 40, 31)
    OP(33, "up", 33, 0)
    OP(34, "down", i, 31)
    OP(35, "bfly", i, 0x1807)
}
