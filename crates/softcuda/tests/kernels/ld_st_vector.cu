// Vectors of two and four elements of every width.
// launch: ld_st_vector grid 1 block 16
// arg: out u32 384
// arg: in u32 384 noise 53

#define MOVE2(type, letter, kind, offset)                                                              \
    {                                                                                                  \
        kind a, b;                                                                                     \
        asm volatile("ld.global.v2." type " {%0, %1}, [%2+" offset "];" : "=" letter(a), "=" letter(b) : "l"(from)); \
        asm volatile("st.global.v2." type " [%0+" offset "], {%2, %1};" ::"l"(to), letter(a), letter(b) : "memory"); \
    }
#define MOVE4(type, letter, kind, offset)                                                              \
    {                                                                                                  \
        kind a, b, c, d;                                                                               \
        asm volatile("ld.global.v4." type " {%0, %1, %2, %3}, [%4+" offset "];"                        \
                     : "=" letter(a), "=" letter(b), "=" letter(c), "=" letter(d)                      \
                     : "l"(from));                                                                     \
        asm volatile("st.global.v4." type " [%0+" offset "], {%4, %3, %2, %1};" ::"l"(to), letter(a), letter(b), \
                     letter(c), letter(d)                                                              \
                     : "memory");                                                                      \
    }

extern "C" __global__ void ld_st_vector(unsigned char *out, const unsigned char *in) {
    unsigned char *to = out + 96 * threadIdx.x;
    const unsigned char *from = in + 96 * threadIdx.x;
    MOVE2("u8", "h", unsigned short, "0")
    MOVE2("b16", "h", unsigned short, "4")
    MOVE2("u32", "r", unsigned, "8")
    MOVE2("f64", "d", double, "16")
    MOVE4("s8", "h", unsigned short, "32")
    MOVE4("u16", "h", unsigned short, "40")
    MOVE4("f32", "f", float, "48")
    MOVE2("b64", "l", unsigned long long, "64")
    MOVE4("b8", "h", unsigned short, "80")
    MOVE4("b16", "h", unsigned short, "88")
}
