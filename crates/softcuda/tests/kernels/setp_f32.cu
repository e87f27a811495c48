// Comparisons of f32, ordered and unordered, as masks of one word for each pair.
// launch: setp_f32 grid 4 block 100
// arg: out u32 800
// arg: in f32 400 corners slow
// arg: in f32 400 corners

#define BIT(k, text)                                                                                       \
    {                                                                                                      \
        unsigned d;                                                                                        \
        asm volatile("{.reg .pred p; setp." text " p, %1, %2; selp.u32 %0, 1, 0, p;}"                      \
                     : "=r"(d)                                                                             \
                     : "f"(x), "f"(y));                                                                    \
        mask |= d << (k);                                                                                    \
    }
#define ALL(tail)                                                                                          \
    BIT(0, "eq" tail) BIT(1, "ne" tail) BIT(2, "lt" tail) BIT(3, "le" tail) BIT(4, "gt" tail)              \
    BIT(5, "ge" tail) BIT(6, "equ" tail) BIT(7, "neu" tail) BIT(8, "ltu" tail) BIT(9, "leu" tail)          \
    BIT(10, "gtu" tail) BIT(11, "geu" tail) BIT(12, "num" tail) BIT(13, "nan" tail)

extern "C" __global__ void setp_f32(unsigned *out, const float *a, const float *b) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, mask = 0;
    float x = a[i], y = b[i];
    ALL(".f32")
    out[i] = mask;
    mask = 0;
    ALL(".ftz.f32")
    out[400 + i] = mask;
}
