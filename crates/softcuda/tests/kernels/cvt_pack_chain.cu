// cvt.pack: integers in and out of range packed into words of 16, 8, 4 and 2 bits.
// launch: cvt_pack_chain grid 1 block 128
// arg: out u32 1024

__device__ unsigned noise(unsigned i) {
    i = (i + 1) * 2654435761u;
    i = (i ^ i >> 15) * 2246822519u;
    return i ^ i >> 13;
}

#define TWO(k, text)                                                  \
    asm volatile(text " %0, %1, %2;" : "=r"(d) : "r"(x), "r"(y));     \
    out[k * 128 + t] = d;
#define CHAIN(k, text, steps)                                                                                 \
    d = 0;                                                                                                    \
    for (int j = 0; j < steps; j++)                                                                           \
        asm volatile(text " %0, %1, %2, %0;" : "+r"(d) : "r"((int)noise(j * 300 + t) >> t % 32), "r"((int)noise(j * 300 + 7 + t) >> 31 - t % 32)); \
    out[k * 128 + t] = d;

extern "C" __global__ void cvt_pack_chain(unsigned *out) {
    unsigned t = threadIdx.x, d;
    int x = (int)noise(t) >> t % 32, y = (int)noise(500 + t) >> 31 - t % 32;
    TWO(0, "cvt.pack.sat.s16.s32")
    TWO(1, "cvt.pack.sat.u16.s32")
    CHAIN(2, "cvt.pack.sat.s8.s32.b32", 2)
    CHAIN(3, "cvt.pack.sat.u8.s32.b32", 2)
    CHAIN(4, "cvt.pack.sat.s4.s32.b32", 4)
    CHAIN(5, "cvt.pack.sat.u4.s32.b32", 4)
    CHAIN(6, "cvt.pack.sat.s2.s32.b32", 8)
    CHAIN(7, "cvt.pack.sat.u2.s32.b32", 8)
}
