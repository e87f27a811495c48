// cvt from integers of every type to f16, f32 and f64 in all roundings.
// launch: cvt_int_to_float grid 8 block 20
// arg: out u64 2240
// arg: in u64 20 corners

#define F16(k, how, from, letter)                                                        \
    {                                                                                    \
        unsigned short d;                                                                \
        asm volatile("cvt." how ".f16." from " %0, %1;" : "=h"(d) : letter(x));          \
        out[(k) * 20] = d;                                                                 \
    }
#define F32(k, how, from, letter)                                                        \
    {                                                                                    \
        float d;                                                                         \
        asm volatile("cvt." how ".f32." from " %0, %1;" : "=f"(d) : letter(x));          \
        out[(k) * 20] = __float_as_uint(d);                                                \
    }
#define F64(k, how, from, letter)                                                        \
    {                                                                                    \
        double d;                                                                        \
        asm volatile("cvt." how ".f64." from " %0, %1;" : "=d"(d) : letter(x));          \
        out[(k) * 20] = __double_as_longlong(d);                                           \
    }
#define ALL(from, letter)                                                                \
    F16(0, "rn", from, letter) F16(1, "rz", from, letter) F16(2, "rm", from, letter) F16(3, "rp", from, letter)     \
    F32(4, "rn", from, letter) F32(5, "rz", from, letter) F32(6, "rm", from, letter) F32(7, "rp", from, letter)     \
    F64(8, "rn", from, letter) F64(9, "rz", from, letter) F64(10, "rm", from, letter) F64(11, "rp", from, letter)   \
    F32(12, "rn.sat", from, letter) F16(13, "rz.sat", from, letter)

extern "C" __global__ void cvt_int_to_float(unsigned long long *out, const unsigned long long *in) {
    out += blockIdx.x * 280 + threadIdx.x;
    unsigned long long value = in[threadIdx.x];
    switch (blockIdx.x) {
        case 0: { unsigned x = (unsigned)value; ALL("u8", "r") break; }
        case 1: { unsigned x = (unsigned)value; ALL("s8", "r") break; }
        case 2: { unsigned short x = (unsigned short)value; ALL("u16", "h") break; }
        case 3: { unsigned short x = (unsigned short)value; ALL("s16", "h") break; }
        case 4: { unsigned x = (unsigned)value; ALL("u32", "r") break; }
        case 5: { unsigned x = (unsigned)value; ALL("s32", "r") break; }
        case 6: { unsigned long long x = value; ALL("u64", "l") break; }
        case 7: { unsigned long long x = value; ALL("s64", "l") break; }
    }
}
