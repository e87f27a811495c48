// mma of bf16; all sums are exact.
// launch: mma_bf16 grid 1 block 32
// arg: out u32 256

__device__ unsigned noise(unsigned i) {
    i = (i + 1) * 2654435761u;
    i = (i ^ i >> 15) * 2246822519u;
    return i ^ i >> 13;
}

__device__ unsigned bf16(unsigned i) {
    const unsigned short numbers[] = {0, 0x3f80, 0xbf80, 0x4000, 0xc000, 0x3f00, 0xbf00, 0x4040};
    return numbers[noise(i) & 7] | numbers[noise(i) >> 3 & 7] << 16;
}

__device__ unsigned f32(unsigned i) {
    return __float_as_uint((int)(noise(i) & 63) - 32);
}

extern "C" __global__ void mma_bf16(unsigned *out) {
    unsigned i = threadIdx.x;
    {
        unsigned d[4], a[2], b[1], c[4];
        for (int j = 0; j < 2; j++) a[j] = bf16(0 + j * 32 + i);
        for (int j = 0; j < 1; j++) b[j] = bf16(300 + j * 32 + i);
        for (int j = 0; j < 4; j++) c[j] = f32(600 + j * 32 + i);
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
        for (int j = 0; j < 4; j++) out[(0 + j) * 32 + i] = d[j];
    }
    {
        unsigned d[4], a[4], b[2], c[4];
        for (int j = 0; j < 4; j++) a[j] = bf16(1000 + j * 32 + i);
        for (int j = 0; j < 2; j++) b[j] = bf16(1300 + j * 32 + i);
        for (int j = 0; j < 4; j++) c[j] = f32(1600 + j * 32 + i);
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
        for (int j = 0; j < 4; j++) out[(4 + j) * 32 + i] = d[j];
    }
}
