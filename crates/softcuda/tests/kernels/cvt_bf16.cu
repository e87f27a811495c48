// cvt between bf16 and integers, f16, f32 and f64, in the roundings that there are.
// launch: cvt_bf16 grid 1 block 20
// arg: out u64 480
// arg: in bf16 20 corners
// arg: in u64 20 corners
// arg: in f16 20 corners

#define FROM(k, to, letter, type)                                                   \
    {                                                                               \
        type d;                                                                     \
        asm volatile("cvt." to ".bf16 %0, %1;" : "=" letter(d) : "h"(b));           \
        out[(k) * 20 + i] = d;                                                        \
    }
#define TO(k, from, letter, x)                                                      \
    {                                                                               \
        unsigned short d;                                                           \
        asm volatile("cvt." from " %0, %1;" : "=h"(d) : letter(x));                 \
        out[(k) * 20 + i] = d;                                                        \
    }

extern "C" __global__ void cvt_bf16(unsigned long long *out, const unsigned short *brain, const unsigned long long *ints,
                                    const unsigned short *halves) {
    unsigned i = threadIdx.x;
    unsigned short b = brain[i], h = halves[i];
    unsigned long long n = ints[i];
    FROM(0, "rni.s32", "r", unsigned)
    FROM(1, "rzi.u32", "r", unsigned)
    FROM(2, "rmi.s64", "l", unsigned long long)
    FROM(3, "rpi.u64", "l", unsigned long long)
    FROM(4, "rni.s16", "h", unsigned short)
    FROM(5, "rzi.u16", "h", unsigned short)
    FROM(6, "rmi.s16", "h", unsigned short)
    TO(7, "rn.bf16.s32", "r", (unsigned)n)
    TO(8, "rz.bf16.s32", "r", (unsigned)n)
    TO(9, "rm.bf16.u32", "r", (unsigned)n)
    TO(10, "rp.bf16.u32", "r", (unsigned)n)
    TO(11, "rn.bf16.s64", "l", n)
    TO(12, "rz.bf16.u64", "l", n)
    TO(13, "rn.bf16.s16", "h", (unsigned short)n)
    TO(14, "rp.bf16.u16", "h", (unsigned short)n)
    TO(15, "rn.bf16.f16", "h", h)
    TO(16, "rz.bf16.f16", "h", h)
    TO(17, "rn.f16.bf16", "h", b)
    TO(18, "rz.f16.bf16", "h", b)
    TO(19, "rn.bf16.f64", "d", __longlong_as_double(n))
    TO(20, "rni.bf16.bf16", "h", b)
    TO(21, "rzi.bf16.bf16", "h", b)
    TO(22, "rp.f16.bf16", "h", b)
    TO(23, "rm.bf16.f16", "h", h)
}
