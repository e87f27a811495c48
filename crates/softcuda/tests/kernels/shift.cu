// Shifts by less than, exactly and more than the width; by what would be a negative amount too.
// launch: shift grid 4 block 100
// arg: out u32 1200
// arg: out u64 1200
// arg: out u16 1200
// arg: in u32 400 corners slow
// arg: in u64 400 corners slow
// arg: in u16 400 corners slow
// arg: in u32 400 corners

#define SHIFT(to, k, text, letter, from)                                          \
    asm volatile(text " %0, %1, %2;" : "=" letter(d_##to) : letter(from), "r"(by)); \
    to[(k) * 400 + i] = d_##to;

extern "C" __global__ void shift(unsigned *out, unsigned long long *wide, unsigned short *narrow, const unsigned *a,
                                 const unsigned long long *b, const unsigned short *c, const unsigned *amounts) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, by = amounts[i], x = a[i], d_out;
    unsigned long long y = b[i], d_wide;
    unsigned short z = c[i], d_narrow;
    SHIFT(out, 0, "shl.b32", "r", x)
    SHIFT(out, 1, "shr.u32", "r", x)
    SHIFT(out, 2, "shr.s32", "r", x)
    SHIFT(wide, 0, "shl.b64", "l", y)
    SHIFT(wide, 1, "shr.u64", "l", y)
    SHIFT(wide, 2, "shr.s64", "l", y)
    SHIFT(narrow, 0, "shl.b16", "h", z)
    SHIFT(narrow, 1, "shr.u16", "h", z)
    SHIFT(narrow, 2, "shr.s16", "h", z)
}
