// selp and slct of every width: the sign of an integer or of an f32 (-0 is no smaller than 0) chooses.
// launch: selp_slct grid 1 block 20
// arg: out u64 240
// arg: in u64 20 corners
// arg: in s32 20 corners
// arg: in f32 20 corners

#define OP(k, letter, type, text)                                                            \
    {                                                                                        \
        type d;                                                                              \
        asm volatile("{.reg .pred p; setp.lt.s32 p, %3, 31; " text "}"                       \
                     : "=" letter(d)                                                         \
                     : letter((type)x), letter((type)(x >> 3)), "r"(c), "f"(f));             \
        out[(k) * 20 + i] = (unsigned long long)d;                                             \
    }

extern "C" __global__ void selp_slct(unsigned long long *out, const unsigned long long *a, const int *b,
                                     const float *e) {
    unsigned i = threadIdx.x;
    unsigned long long x = a[i];
    int c = b[i];
    float f = e[i];
    OP(0, "h", unsigned short, "selp.b16 %0, %1, %2, p;")
    OP(1, "r", unsigned, "selp.b32 %0, %1, %2, p;")
    OP(2, "l", unsigned long long, "selp.s64 %0, %1, %2, p;")
    OP(3, "h", unsigned short, "slct.b16.s32 %0, %1, %2, %3;")
    OP(4, "r", unsigned, "slct.u32.s32 %0, %1, %2, %3;")
    OP(5, "l", unsigned long long, "slct.b64.s32 %0, %1, %2, %3;")
    OP(6, "h", unsigned short, "slct.u16.f32 %0, %1, %2, %4;")
    OP(7, "r", unsigned, "slct.b32.f32 %0, %1, %2, %4;")
    OP(8, "l", unsigned long long, "slct.s64.f32 %0, %1, %2, %4;")
    OP(9, "r", unsigned, "slct.ftz.b32.f32 %0, %1, %2, %4;")
    OP(10, "r", unsigned, "selp.s32 %0, %1, 7, p;")
    OP(11, "h", short, "selp.s16 %0, %1, %2, p;")
}
