// Comparisons of integers of every width and sign, as masks of one word for each pair.
// launch: setp_int grid 4 block 100
// arg: out u32 1200
// arg: in u16 400 corners slow
// arg: in u16 400 corners
// arg: in u32 400 corners slow
// arg: in u32 400 corners
// arg: in u64 400 corners slow
// arg: in u64 400 corners

#define BIT(k, text, letter, m, n)                                                                \
    {                                                                                             \
        unsigned d;                                                                               \
        asm volatile("{.reg .pred p; setp." text " p, %1, %2; selp.u32 %0, 1, 0, p;}"             \
                     : "=r"(d)                                                                    \
                     : letter(m), letter(n));                                                     \
        mask |= d << (k);                                                                           \
    }
#define ALL(bits, letter, m, n)                                                                                   \
    mask = 0;                                                                                                     \
    BIT(0, "eq.s" bits, letter, m, n) BIT(1, "ne.s" bits, letter, m, n) BIT(2, "lt.s" bits, letter, m, n)         \
    BIT(3, "le.s" bits, letter, m, n) BIT(4, "gt.s" bits, letter, m, n) BIT(5, "ge.s" bits, letter, m, n)         \
    BIT(6, "eq.u" bits, letter, m, n) BIT(7, "ne.u" bits, letter, m, n) BIT(8, "lo.u" bits, letter, m, n)         \
    BIT(9, "ls.u" bits, letter, m, n) BIT(10, "hi.u" bits, letter, m, n) BIT(11, "hs.u" bits, letter, m, n)       \
    BIT(12, "lt.u" bits, letter, m, n) BIT(13, "le.u" bits, letter, m, n) BIT(14, "gt.u" bits, letter, m, n)      \
    BIT(15, "ge.u" bits, letter, m, n) BIT(16, "eq.b" bits, letter, m, n) BIT(17, "ne.b" bits, letter, m, n)

extern "C" __global__ void setp_int(unsigned *out, const unsigned short *a, const unsigned short *b, const unsigned *c,
                                    const unsigned *d, const unsigned long long *e, const unsigned long long *f) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, mask;
    unsigned short p = a[i], q = b[i];
    unsigned r = c[i], s = d[i];
    unsigned long long t = e[i], u = f[i];
    ALL("16", "h", p, q)
    out[i] = mask;
    ALL("32", "r", r, s)
    out[400 + i] = mask;
    ALL("64", "l", t, u)
    out[800 + i] = mask;
}
