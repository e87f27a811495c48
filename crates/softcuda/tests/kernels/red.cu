// Reductions without a result, of every operation, order and scope.
// launch: red grid 2 block 64
// arg: inout u32 11 bits 0,0,0xffffffff,0,0x80000000,0x7fffffff,0,0xffffffff,0,0,50
// arg: inout u64 7 bits 0,0,0xffffffffffffffff,0,0,0xffffffffffffffff,0x7fffffffffffffff
// arg: in u32 128 random 58

extern "C" __global__ void red(unsigned *words, unsigned long long *wide, const unsigned *in) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, x = in[i];
    unsigned long long y = (unsigned long long)x * x;
#define OP(k, text, value) asm volatile("red." text " [%0], %1;" ::"l"(words + (k)), "r"(value) : "memory");
#define WIDE(k, text, value) asm volatile("red." text " [%0], %1;" ::"l"(wide + (k)), "l"(value) : "memory");
    OP(0, "global.add.u32", x)
    OP(1, "relaxed.gpu.global.add.s32", -x)
    OP(2, "release.gpu.global.min.u32", x)
    OP(3, "relaxed.sys.max.u32", x)
    OP(4, "global.gpu.max.s32", x)
    OP(5, "global.sys.min.s32", x)
    OP(6, "or.b32", x & 0x0f0f0f0f)
    OP(7, "and.b32", x | 0xff00ff00)
    OP(8, "global.xor.b32", x)
    OP(9, "global.inc.u32", 9)
    OP(10, "global.dec.u32", 77)
    WIDE(0, "global.add.u64", y)
    WIDE(1, "global.xor.b64", y)
    WIDE(2, "global.min.u64", y)
    WIDE(3, "global.max.u64", y)
    WIDE(4, "relaxed.gpu.global.or.b64", y)
    WIDE(5, "global.and.b64", ~y)
    WIDE(6, "global.min.s64", y)
}
