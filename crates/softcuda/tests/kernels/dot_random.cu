// dp4a and dp2a in chains that wrap, of every pair of types.
// launch: dot_random grid 1 block 64
// arg: out u32 768

__device__ unsigned noise(unsigned i) {
    i = (i + 1) * 2654435761u;
    i = (i ^ i >> 15) * 2246822519u;
    return i ^ i >> 13;
}

#define OP(k, text)                                                                                             \
    {                                                                                                           \
        unsigned d = noise(k * 64 + t);                                                                         \
        for (unsigned j = 0; j < 20; j++)                                                                       \
            asm volatile(text " %0, %1, %2, %0;" : "+r"(d) : "r"(noise(j * 64 + t)), "r"(noise(5000 + j + t))); \
        out[k * 64 + t] = d;                                                                                    \
    }

extern "C" __global__ void dot_random(unsigned *out) {
    unsigned t = threadIdx.x;
    OP(0, "dp4a.u32.u32")
    OP(1, "dp4a.s32.s32")
    OP(2, "dp4a.u32.s32")
    OP(3, "dp4a.s32.u32")
    OP(4, "dp2a.lo.u32.u32")
    OP(5, "dp2a.hi.u32.u32")
    OP(6, "dp2a.lo.s32.s32")
    OP(7, "dp2a.hi.s32.s32")
    OP(8, "dp2a.lo.s32.u32")
    OP(9, "dp2a.hi.s32.u32")
    OP(10, "dp2a.lo.u32.s32")
    OP(11, "dp2a.hi.u32.s32")
}
