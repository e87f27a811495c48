// prmt with every digit of a selector in every place, and its modes with every selector.
// launch: prmt_selectors grid 1 block 256
// arg: out u32 2560

__device__ unsigned noise(unsigned i) {
    i = (i + 1) * 2654435761u;
    i = (i ^ i >> 15) * 2246822519u;
    return i ^ i >> 13;
}

#define OP(k, text, order)                                                                \
    {                                                                                     \
        unsigned d;                                                                       \
        asm volatile(text " %0, %1, %2, %3;" : "=r"(d) : "r"(x), "r"(y), "r"(order));     \
        out[k * 256 + t] = d;                                                             \
    }

extern "C" __global__ void prmt_selectors(unsigned *out) {
    unsigned t = threadIdx.x, x = noise(t), y = noise(1000 + t);
    OP(0, "prmt.b32", t)
    OP(1, "prmt.b32", t << 8)
    OP(2, "prmt.b32", t * 0x101)
    OP(3, "prmt.b32", noise(2000 + t))
    OP(4, "prmt.b32.f4e", t)
    OP(5, "prmt.b32.b4e", t)
    OP(6, "prmt.b32.rc8", t)
    OP(7, "prmt.b32.ecl", t)
    OP(8, "prmt.b32.ecr", t)
    OP(9, "prmt.b32.rc16", t)
}
