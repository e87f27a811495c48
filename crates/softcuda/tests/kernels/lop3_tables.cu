// lop3 with many tables.
// launch: lop3_tables grid 1 block 64
// arg: out u32 1472

__device__ unsigned noise(unsigned i) {
    i = (i + 1) * 2654435761u;
    i = (i ^ i >> 15) * 2246822519u;
    return i ^ i >> 13;
}

#define OP(k, table)                                                                             \
    {                                                                                            \
        unsigned d;                                                                              \
        asm volatile("lop3.b32 %0, %1, %2, %3, " #table ";" : "=r"(d) : "r"(x), "r"(y), "r"(z)); \
        out[k * 64 + t] = d;                                                                     \
    }

extern "C" __global__ void lop3_tables(unsigned *out) {
    unsigned t = threadIdx.x, x = noise(t), y = noise(100 + t), z = noise(200 + t);
    OP(0, 0x3)
    OP(1, 0xe)
    OP(2, 0x19)
    OP(3, 0x24)
    OP(4, 0x2f)
    OP(5, 0x3a)
    OP(6, 0x45)
    OP(7, 0x50)
    OP(8, 0x5b)
    OP(9, 0x66)
    OP(10, 0x71)
    OP(11, 0x7c)
    OP(12, 0x87)
    OP(13, 0x92)
    OP(14, 0x9d)
    OP(15, 0xa8)
    OP(16, 0xb3)
    OP(17, 0xbe)
    OP(18, 0xc9)
    OP(19, 0xd4)
    OP(20, 0xdf)
    OP(21, 0xea)
    OP(22, 0xf5)
}
