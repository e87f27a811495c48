// testp: what kind of number it is.
// launch: testp grid 1 block 20
// arg: out u32 40
// arg: in f32 20 corners
// arg: in f64 20 corners

#define BIT(k, text, letter, x)                                                                            \
    {                                                                                                      \
        unsigned d;                                                                                        \
        asm volatile("{.reg .pred p; testp." text " p, %1; selp.u32 %0, 1, 0, p;}" : "=r"(d) : letter(x)); \
        mask |= d << (k);                                                                                    \
    }
#define ALL(type, letter, x)                                                                               \
    mask = 0;                                                                                              \
    BIT(0, "finite" type, letter, x) BIT(1, "infinite" type, letter, x) BIT(2, "number" type, letter, x)   \
    BIT(3, "notanumber" type, letter, x) BIT(4, "normal" type, letter, x) BIT(5, "subnormal" type, letter, x)

extern "C" __global__ void testp(unsigned *out, const float *a, const double *b) {
    unsigned i = threadIdx.x, mask;
    float x = a[i];
    double y = b[i];
    ALL(".f32", "f", x)
    out[i] = mask;
    ALL(".f64", "d", y)
    out[20 + i] = mask;
}
