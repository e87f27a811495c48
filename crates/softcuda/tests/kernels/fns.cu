// fns: the n-th bit that is set, up or down from a place.
// launch: fns grid 1 block 256
// arg: out u32 2304

__device__ unsigned noise(unsigned i) {
    i = (i + 1) * 2654435761u;
    i = (i ^ i >> 15) * 2246822519u;
    return i ^ i >> 13;
}

#define OP(k, mask, base, offset)                                                                          \
    asm volatile("fns.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(mask), "r"(base), "r"(offset));                 \
    out[k * 256 + t] = d;

extern "C" __global__ void fns(unsigned *out) {
    unsigned t = threadIdx.x, d, x = noise(t), base = noise(1000 + t) % 32;
    OP(0, x, base, 0)
    OP(1, x, base, 1)
    OP(2, x, base, -1)
    OP(3, x, base, (int)(t % 17) - 8)
    OP(4, x & noise(300 + t), base, (int)(t % 9) - 4)
    OP(5, 0xffffffffu, base, (int)(t % 65) - 32)
    OP(6, 0, base, (int)(t % 5) - 2)
    OP(7, 1u << t % 32, t / 8, t / 128 ? 1 : -1)
    OP(8, x | 0x80000001u, t & 1 ? 31 : 0, t & 2 ? 3 : -3)
}
