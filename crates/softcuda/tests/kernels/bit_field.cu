// bfe and bfi: fields that reach beyond the word, of length zero; of 32 bits with positions and lengths beyond eight bits
// too, which are cut off.
// launch: bit_field grid 4 block 100
// arg: out u32 1200
// arg: out u64 1200
// arg: in u32 400 random 8
// arg: in u64 400 random 9
// arg: in u32 400 corners slow
// arg: in u32 400 corners

#define EXTRACT(to, k, text, letter, from)                                                        \
    asm volatile(text " %0, %1, %2, %3;" : "=" letter(d_##to) : letter(from), "r"(at), "r"(length)); \
    to[(k) * 400 + i] = d_##to;
#define INSERT(to, k, text, letter, from)                                                  \
    asm volatile(text " %0, %1, %2, %3, %4;"                                               \
                 : "=" letter(d_##to)                                                      \
                 : letter(from), letter(~from >> 1), "r"(at), "r"(length));                \
    to[(k) * 400 + i] = d_##to;

extern "C" __global__ void bit_field(unsigned *out, unsigned long long *wide, const unsigned *a,
                                     const unsigned long long *b, const unsigned *starts, const unsigned *lengths) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, at = starts[i], length = lengths[i], x = a[i], d_out;
    unsigned long long y = b[i], d_wide;
    EXTRACT(out, 0, "bfe.u32", "r", x)
    EXTRACT(out, 1, "bfe.s32", "r", x)
    INSERT(out, 2, "bfi.b32", "r", x)
    at &= 255;
    length &= 255;
    EXTRACT(wide, 0, "bfe.u64", "l", y)
    EXTRACT(wide, 1, "bfe.s64", "l", y)
    INSERT(wide, 2, "bfi.b64", "l", y)
}
