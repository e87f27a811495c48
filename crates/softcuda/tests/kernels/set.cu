// set: a comparison that writes all ones, or 1.0.
// launch: set grid 4 block 100
// arg: out u32 3200
// arg: in f32 400 corners slow
// arg: in f32 400 corners

#define WORD(k, text)                                                                   \
    {                                                                                   \
        unsigned d;                                                                     \
        asm volatile("{.reg .pred r; setp.gt.f32 r, %1, 0f3F000000; " text "}"          \
                     : "=r"(d)                                                          \
                     : "f"(x), "f"(y), "r"(m), "r"(n));                                 \
        out[(k) * 400 + i] = d;                                                           \
    }
#define REAL(k, text)                                                                   \
    {                                                                                   \
        float d;                                                                        \
        asm volatile("{.reg .pred r; setp.gt.f32 r, %1, 0f3F000000; " text "}"          \
                     : "=f"(d)                                                          \
                     : "f"(x), "f"(y), "r"(m), "r"(n));                                 \
        out[(k) * 400 + i] = __float_as_uint(d);                                          \
    }

extern "C" __global__ void set(unsigned *out, const float *a, const float *b) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = a[i], y = b[i];
    unsigned m = __float_as_uint(x), n = __float_as_uint(y);
    WORD(0, "set.lt.u32.f32 %0, %1, %2;")
    WORD(1, "set.geu.s32.f32 %0, %1, %2;")
    WORD(2, "set.eq.and.u32.f32 %0, %1, %2, r;")
    WORD(3, "set.hi.u32.u32 %0, %3, %4;")
    REAL(4, "set.lt.f32.f32 %0, %1, %2;")
    REAL(5, "set.nan.or.f32.f32 %0, %1, %2, r;")
    REAL(6, "set.le.f32.s32 %0, %3, %4;")
    REAL(7, "set.ne.xor.ftz.f32.f32 %0, %1, %2, !r;")
}
