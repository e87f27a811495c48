// mma of bytes, whose sums are clamped; half of them are near the ends of the range.
// launch: mma_s8_satfinite grid 1 block 32
// arg: out u32 1280

__device__ unsigned noise(unsigned i) {
    i = (i + 1) * 2654435761u;
    i = (i ^ i >> 15) * 2246822519u;
    return i ^ i >> 13;
}

__device__ unsigned word(unsigned i) {
    return noise(i);
}

extern "C" __global__ void mma_s8_satfinite(unsigned *out) {
    unsigned i = threadIdx.x;
    {
        unsigned d[2], a[1], b[1], c[2];
        for (int j = 0; j < 1; j++) a[j] = word(0 + j * 32 + i);
        for (int j = 0; j < 1; j++) b[j] = word(300 + j * 32 + i);
        for (int j = 0; j < 2; j++) c[j] = (i + j & 1 ? 0x7fffffff : 0x80000000) ^ (i % 3 ? noise(i + j) >> 18 : 0);
        asm volatile("mma.sync.aligned.m8n8k16.row.col.satfinite.s32.s8.s8.s32 "
                     "{%0, %1}, {%2}, {%3}, {%4, %5};"
                     : "=r"(d[0]), "=r"(d[1])
                     : "r"(a[0]), "r"(b[0]), "r"(c[0]), "r"(c[1]));
        for (int j = 0; j < 2; j++) out[(0 + j) * 32 + i] = d[j];
    }
    {
        unsigned d[2], a[1], b[1], c[2];
        for (int j = 0; j < 1; j++) a[j] = word(1000 + j * 32 + i);
        for (int j = 0; j < 1; j++) b[j] = word(1300 + j * 32 + i);
        for (int j = 0; j < 2; j++) c[j] = (i + j & 1 ? 0x7fffffff : 0x80000000) ^ (i % 3 ? noise(i + j) >> 18 : 0);
        asm volatile("mma.sync.aligned.m8n8k16.row.col.satfinite.s32.s8.u8.s32 "
                     "{%0, %1}, {%2}, {%3}, {%4, %5};"
                     : "=r"(d[0]), "=r"(d[1])
                     : "r"(a[0]), "r"(b[0]), "r"(c[0]), "r"(c[1]));
        for (int j = 0; j < 2; j++) out[(2 + j) * 32 + i] = d[j];
    }
    {
        unsigned d[2], a[1], b[1], c[2];
        for (int j = 0; j < 1; j++) a[j] = word(2000 + j * 32 + i);
        for (int j = 0; j < 1; j++) b[j] = word(2300 + j * 32 + i);
        for (int j = 0; j < 2; j++) c[j] = (i + j & 1 ? 0x7fffffff : 0x80000000) ^ (i % 3 ? noise(i + j) >> 18 : 0);
        asm volatile("mma.sync.aligned.m8n8k16.row.col.satfinite.s32.u8.s8.s32 "
                     "{%0, %1}, {%2}, {%3}, {%4, %5};"
                     : "=r"(d[0]), "=r"(d[1])
                     : "r"(a[0]), "r"(b[0]), "r"(c[0]), "r"(c[1]));
        for (int j = 0; j < 2; j++) out[(4 + j) * 32 + i] = d[j];
    }
    {
        unsigned d[2], a[1], b[1], c[2];
        for (int j = 0; j < 1; j++) a[j] = word(3000 + j * 32 + i);
        for (int j = 0; j < 1; j++) b[j] = word(3300 + j * 32 + i);
        for (int j = 0; j < 2; j++) c[j] = (i + j & 1 ? 0x7fffffff : 0x80000000) ^ (i % 3 ? noise(i + j) >> 18 : 0);
        asm volatile("mma.sync.aligned.m8n8k16.row.col.satfinite.s32.u8.u8.s32 "
                     "{%0, %1}, {%2}, {%3}, {%4, %5};"
                     : "=r"(d[0]), "=r"(d[1])
                     : "r"(a[0]), "r"(b[0]), "r"(c[0]), "r"(c[1]));
        for (int j = 0; j < 2; j++) out[(6 + j) * 32 + i] = d[j];
    }
    {
        unsigned d[4], a[2], b[1], c[4];
        for (int j = 0; j < 2; j++) a[j] = word(4000 + j * 32 + i);
        for (int j = 0; j < 1; j++) b[j] = word(4300 + j * 32 + i);
        for (int j = 0; j < 4; j++) c[j] = (i + j & 1 ? 0x7fffffff : 0x80000000) ^ (i % 3 ? noise(i + j) >> 18 : 0);
        asm volatile("mma.sync.aligned.m16n8k16.row.col.satfinite.s32.s8.s8.s32 "
                     "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
        for (int j = 0; j < 4; j++) out[(8 + j) * 32 + i] = d[j];
    }
    {
        unsigned d[4], a[2], b[1], c[4];
        for (int j = 0; j < 2; j++) a[j] = word(5000 + j * 32 + i);
        for (int j = 0; j < 1; j++) b[j] = word(5300 + j * 32 + i);
        for (int j = 0; j < 4; j++) c[j] = (i + j & 1 ? 0x7fffffff : 0x80000000) ^ (i % 3 ? noise(i + j) >> 18 : 0);
        asm volatile("mma.sync.aligned.m16n8k16.row.col.satfinite.s32.s8.u8.s32 "
                     "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
        for (int j = 0; j < 4; j++) out[(12 + j) * 32 + i] = d[j];
    }
    {
        unsigned d[4], a[2], b[1], c[4];
        for (int j = 0; j < 2; j++) a[j] = word(6000 + j * 32 + i);
        for (int j = 0; j < 1; j++) b[j] = word(6300 + j * 32 + i);
        for (int j = 0; j < 4; j++) c[j] = (i + j & 1 ? 0x7fffffff : 0x80000000) ^ (i % 3 ? noise(i + j) >> 18 : 0);
        asm volatile("mma.sync.aligned.m16n8k16.row.col.satfinite.s32.u8.s8.s32 "
                     "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
        for (int j = 0; j < 4; j++) out[(16 + j) * 32 + i] = d[j];
    }
    {
        unsigned d[4], a[2], b[1], c[4];
        for (int j = 0; j < 2; j++) a[j] = word(7000 + j * 32 + i);
        for (int j = 0; j < 1; j++) b[j] = word(7300 + j * 32 + i);
        for (int j = 0; j < 4; j++) c[j] = (i + j & 1 ? 0x7fffffff : 0x80000000) ^ (i % 3 ? noise(i + j) >> 18 : 0);
        asm volatile("mma.sync.aligned.m16n8k16.row.col.satfinite.s32.u8.u8.s32 "
                     "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
        for (int j = 0; j < 4; j++) out[(20 + j) * 32 + i] = d[j];
    }
    {
        unsigned d[4], a[4], b[2], c[4];
        for (int j = 0; j < 4; j++) a[j] = word(8000 + j * 32 + i);
        for (int j = 0; j < 2; j++) b[j] = word(8300 + j * 32 + i);
        for (int j = 0; j < 4; j++) c[j] = (i + j & 1 ? 0x7fffffff : 0x80000000) ^ (i % 3 ? noise(i + j) >> 18 : 0);
        asm volatile("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
        for (int j = 0; j < 4; j++) out[(24 + j) * 32 + i] = d[j];
    }
    {
        unsigned d[4], a[4], b[2], c[4];
        for (int j = 0; j < 4; j++) a[j] = word(9000 + j * 32 + i);
        for (int j = 0; j < 2; j++) b[j] = word(9300 + j * 32 + i);
        for (int j = 0; j < 4; j++) c[j] = (i + j & 1 ? 0x7fffffff : 0x80000000) ^ (i % 3 ? noise(i + j) >> 18 : 0);
        asm volatile("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
        for (int j = 0; j < 4; j++) out[(28 + j) * 32 + i] = d[j];
    }
    {
        unsigned d[4], a[4], b[2], c[4];
        for (int j = 0; j < 4; j++) a[j] = word(10000 + j * 32 + i);
        for (int j = 0; j < 2; j++) b[j] = word(10300 + j * 32 + i);
        for (int j = 0; j < 4; j++) c[j] = (i + j & 1 ? 0x7fffffff : 0x80000000) ^ (i % 3 ? noise(i + j) >> 18 : 0);
        asm volatile("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.u8.s8.s32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
        for (int j = 0; j < 4; j++) out[(32 + j) * 32 + i] = d[j];
    }
    {
        unsigned d[4], a[4], b[2], c[4];
        for (int j = 0; j < 4; j++) a[j] = word(11000 + j * 32 + i);
        for (int j = 0; j < 2; j++) b[j] = word(11300 + j * 32 + i);
        for (int j = 0; j < 4; j++) c[j] = (i + j & 1 ? 0x7fffffff : 0x80000000) ^ (i % 3 ? noise(i + j) >> 18 : 0);
        asm volatile("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.u8.u8.s32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
        for (int j = 0; j < 4; j++) out[(36 + j) * 32 + i] = d[j];
    }
}
