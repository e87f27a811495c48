// cvt between integers of every pair of types, cut off or saturated.
// launch: cvt_int grid 8 block 20
// arg: out u64 2560
// arg: in u64 20 corners

#define NARROW(k, to, from, letter)                                                           \
    {                                                                                         \
        unsigned d;                                                                           \
        asm volatile("cvt." to "." from " %0, %1;" : "=r"(d) : letter(x));                    \
        out[(k) * 20] = d;                                                                      \
    }
#define HALF(k, to, from, letter)                                                             \
    {                                                                                         \
        unsigned short d;                                                                     \
        asm volatile("cvt." to "." from " %0, %1;" : "=h"(d) : letter(x));                    \
        out[(k) * 20] = d;                                                                      \
    }
#define WIDE(k, to, from, letter)                                                             \
    {                                                                                         \
        unsigned long long d;                                                                 \
        asm volatile("cvt." to "." from " %0, %1;" : "=l"(d) : letter(x));                    \
        out[(k) * 20] = d;                                                                      \
    }
#define ALL(from, letter)                                                                     \
    NARROW(0, "u8", from, letter) NARROW(1, "s8", from, letter) HALF(2, "u16", from, letter)  \
    HALF(3, "s16", from, letter) NARROW(4, "u32", from, letter) NARROW(5, "s32", from, letter) \
    WIDE(6, "u64", from, letter) WIDE(7, "s64", from, letter)
// Only where a value may not fit is .sat allowed.
#define U8(from, letter) NARROW(8, "sat.u8", from, letter)
#define S8(from, letter) NARROW(9, "sat.s8", from, letter)
#define U16(from, letter) HALF(10, "sat.u16", from, letter)
#define S16(from, letter) HALF(11, "sat.s16", from, letter)
#define U32(from, letter) NARROW(12, "sat.u32", from, letter)
#define S32(from, letter) NARROW(13, "sat.s32", from, letter)
#define U64(from, letter) WIDE(14, "sat.u64", from, letter)
#define S64(from, letter) WIDE(15, "sat.s64", from, letter)
#define SMALL(from, letter) U8(from, letter) S8(from, letter)
#define MIDDLE(from, letter) SMALL(from, letter) U16(from, letter) S16(from, letter)
#define LARGE(from, letter) MIDDLE(from, letter) U32(from, letter) S32(from, letter)

extern "C" __global__ void cvt_int(unsigned long long *out, const unsigned long long *in) {
    out += blockIdx.x * 320 + threadIdx.x;
    unsigned long long x = in[threadIdx.x];
    unsigned short half = (unsigned short)x;
    unsigned word = (unsigned)x;
    switch (blockIdx.x) {
        case 0: { unsigned x = word; ALL("u8", "r") S8("u8", "r") break; }
        case 1: { unsigned x = word; ALL("s8", "r") U8("s8", "r") U16("s8", "r") U32("s8", "r") U64("s8", "r") break; }
        case 2: { unsigned short x = half; ALL("u16", "h") SMALL("u16", "h") S16("u16", "h") break; }
        case 3: { unsigned short x = half; ALL("s16", "h") SMALL("s16", "h") U16("s16", "h") U32("s16", "h") U64("s16", "h") break; }
        case 4: { unsigned x = word; ALL("u32", "r") MIDDLE("u32", "r") S32("u32", "r") break; }
        case 5: { unsigned x = word; ALL("s32", "r") MIDDLE("s32", "r") U32("s32", "r") U64("s32", "r") break; }
        case 6: ALL("u64", "l") LARGE("u64", "l") S64("u64", "l") break;
        case 7: ALL("s64", "l") LARGE("s64", "l") U64("s64", "l") break;
    }
}
