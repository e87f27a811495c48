// Atomic operations on words of global memory: what they leave and the sum of what they gave back.
// launch: atom_int grid 2 block 64
// arg: inout u32 12 bits 0,100,0xffffffff,0,0x80000000,0x7fffffff,0,0xffffffff,0,0,50,5
// arg: inout u64 8 bits 0,0,0xffffffffffffffff,0,0x8000000000000000,0x7fffffffffffffff,0,0xffffffffffffffff
// arg: in u32 128 random 55
// arg: in u64 128 noise 56

extern "C" __global__ void atom_int(unsigned *words, unsigned long long *wide, const unsigned *in,
                                    const unsigned long long *in_wide) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, x = in[i], d;
    unsigned long long y = in_wide[i], e;
#define OP(k, text, value) asm volatile("atom." text " %0, [%1], %2;" : "=r"(d) : "l"(words + (k)), "r"(value) : "memory");
#define WIDE(k, text, value) asm volatile("atom." text " %0, [%1], %2;" : "=l"(e) : "l"(wide + (k)), "l"(value) : "memory");
    OP(0, "global.add.u32", x)
    OP(1, "global.add.s32", -x)
    OP(2, "global.min.u32", x)
    OP(3, "global.max.u32", x)
    OP(4, "global.max.s32", x)
    OP(5, "global.min.s32", x)
    OP(6, "global.or.b32", x & 0x0f0f0f0f)
    OP(7, "global.and.b32", x | 0xff00ff00)
    OP(8, "xor.b32", x)
    OP(9, "inc.u32", 9)
    OP(10, "dec.u32", 77)
    WIDE(0, "global.add.u64", y)
    WIDE(1, "global.xor.b64", y)
    WIDE(2, "global.min.u64", y)
    WIDE(3, "global.max.u64", y)
    WIDE(4, "global.max.s64", y)
    WIDE(5, "global.min.s64", y)
    WIDE(6, "or.b64", y & 0xff00ff00ff00)
    WIDE(7, "and.b64", y | 0xff0000ffff0000ff)
    OP(11, "exch.b32", 42)
}
