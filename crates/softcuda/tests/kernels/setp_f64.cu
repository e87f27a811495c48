// Comparisons of f64, ordered and unordered, as masks of one word for each pair.
// launch: setp_f64 grid 4 block 100
// arg: out u32 400
// arg: in f64 400 corners slow
// arg: in f64 400 corners

#define BIT(k, text)                                                                                       \
    {                                                                                                      \
        unsigned d;                                                                                        \
        asm volatile("{.reg .pred p; setp." text ".f64 p, %1, %2; selp.u32 %0, 1, 0, p;}"                  \
                     : "=r"(d)                                                                             \
                     : "d"(x), "d"(y));                                                                    \
        mask |= d << (k);                                                                                    \
    }

extern "C" __global__ void setp_f64(unsigned *out, const double *a, const double *b) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, mask = 0;
    double x = a[i], y = b[i];
    BIT(0, "eq") BIT(1, "ne") BIT(2, "lt") BIT(3, "le") BIT(4, "gt") BIT(5, "ge") BIT(6, "equ") BIT(7, "neu")
    BIT(8, "ltu") BIT(9, "leu") BIT(10, "gtu") BIT(11, "geu") BIT(12, "num") BIT(13, "nan")
    out[i] = mask;
}
