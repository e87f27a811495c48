// Loads and stores of every width: sign and zero extension, and cutting off.
// launch: ld_st_widths grid 1 block 32
// arg: out u64 320
// arg: out u64 64
// arg: in u64 32 noise 52

extern "C" __global__ void ld_st_widths(unsigned long long *out, unsigned char *bytes, const unsigned char *in) {
    unsigned i = threadIdx.x;
    const unsigned char *at = in + 8 * i;
    unsigned long long d;
    unsigned w;
    unsigned short h;
#define WIDE(k, text)                                                          \
    asm volatile("ld.global." text " %0, [%1];" : "=l"(d) : "l"(at)); \
    out[(k) * 32 + i] = d;
#define WORD(k, text)                                                          \
    asm volatile("ld.global." text " %0, [%1+4];" : "=r"(w) : "l"(at)); \
    out[(k) * 32 + i] = w;
    WIDE(0, "u8")
    WIDE(1, "s8")
    WIDE(2, "s16")
    WIDE(3, "u32")
    WIDE(4, "s32")
    WIDE(5, "b64")
    WORD(6, "s8")
    WORD(7, "u16")
    WORD(8, "b32")
    asm volatile("ld.global.s8 %0, [%1+1];" : "=h"(h) : "l"(at));
    out[9 * 32 + i] = h;
    unsigned char *to = bytes + 16 * i;
    asm volatile("st.global.u8 [%0], %1;" ::"l"(to), "r"(w) : "memory");
    asm volatile("st.global.b16 [%0+2], %1;" ::"l"(to), "h"(h) : "memory");
    asm volatile("st.global.s32 [%0+4], %1;" ::"l"(to), "r"(w) : "memory");
    asm volatile("st.global.u8 [%0+8], %1;" ::"l"(to), "l"(d) : "memory");
    asm volatile("st.global.u16 [%0+10], %1;" ::"l"(to), "h"(h) : "memory");
    asm volatile("st.global.u32 [%0+12], %1;" ::"l"(to), "r"(~w) : "memory");
}
