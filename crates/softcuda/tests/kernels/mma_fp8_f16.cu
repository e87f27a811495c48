// mma of 8-bit floats with sums of f16; all sums are exact.
// launch: mma_fp8_f16 grid 1 block 32
// arg: out u32 512

__device__ unsigned noise(unsigned i) {
    i = (i + 1) * 2654435761u;
    i = (i ^ i >> 15) * 2246822519u;
    return i ^ i >> 13;
}

__device__ unsigned e4m3(unsigned i) {
    const unsigned char numbers[] = {0, 0x38, 0xb8, 0x40, 0xc0, 0x30, 0xb0, 0x44};
    unsigned word = 0, digits = noise(i);
    for (int part = 0; part < 4; part++) word |= numbers[digits >> 3 * part & 7] << 8 * part;
    return word;
}

__device__ unsigned f16(unsigned i) {
    const unsigned short numbers[] = {0, 0x3c00, 0xbc00, 0x4000, 0xc000, 0x3800, 0xb800, 0x4200};
    return numbers[noise(i) & 7] | numbers[noise(i) >> 3 & 7] << 16;
}

__device__ unsigned e5m2(unsigned i) {
    const unsigned char numbers[] = {0, 0x3c, 0xbc, 0x40, 0xc0, 0x38, 0xb8, 0x42};
    unsigned word = 0, digits = noise(i);
    for (int part = 0; part < 4; part++) word |= numbers[digits >> 3 * part & 7] << 8 * part;
    return word;
}

extern "C" __global__ void mma_fp8_f16(unsigned *out) {
    unsigned i = threadIdx.x;
    {
        unsigned d[2], a[4], b[2], c[2];
        for (int j = 0; j < 4; j++) a[j] = e4m3(0 + j * 32 + i);
        for (int j = 0; j < 2; j++) b[j] = e4m3(300 + j * 32 + i);
        for (int j = 0; j < 2; j++) c[j] = f16(600 + j * 32 + i);
        asm volatile("mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e4m3.f16 "
                     "{%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%8, %9};"
                     : "=r"(d[0]), "=r"(d[1])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]));
        for (int j = 0; j < 2; j++) out[(0 + j) * 32 + i] = d[j];
    }
    {
        unsigned d[2], a[4], b[2], c[2];
        for (int j = 0; j < 4; j++) a[j] = e4m3(1000 + j * 32 + i);
        for (int j = 0; j < 2; j++) b[j] = e5m2(1300 + j * 32 + i);
        for (int j = 0; j < 2; j++) c[j] = f16(1600 + j * 32 + i);
        asm volatile("mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e5m2.f16 "
                     "{%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%8, %9};"
                     : "=r"(d[0]), "=r"(d[1])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]));
        for (int j = 0; j < 2; j++) out[(2 + j) * 32 + i] = d[j];
    }
    {
        unsigned d[2], a[4], b[2], c[2];
        for (int j = 0; j < 4; j++) a[j] = e5m2(2000 + j * 32 + i);
        for (int j = 0; j < 2; j++) b[j] = e4m3(2300 + j * 32 + i);
        for (int j = 0; j < 2; j++) c[j] = f16(2600 + j * 32 + i);
        asm volatile("mma.sync.aligned.m16n8k32.row.col.f16.e5m2.e4m3.f16 "
                     "{%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%8, %9};"
                     : "=r"(d[0]), "=r"(d[1])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]));
        for (int j = 0; j < 2; j++) out[(4 + j) * 32 + i] = d[j];
    }
    {
        unsigned d[2], a[4], b[2], c[2];
        for (int j = 0; j < 4; j++) a[j] = e5m2(3000 + j * 32 + i);
        for (int j = 0; j < 2; j++) b[j] = e5m2(3300 + j * 32 + i);
        for (int j = 0; j < 2; j++) c[j] = f16(3600 + j * 32 + i);
        asm volatile("mma.sync.aligned.m16n8k32.row.col.f16.e5m2.e5m2.f16 "
                     "{%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%8, %9};"
                     : "=r"(d[0]), "=r"(d[1])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]));
        for (int j = 0; j < 2; j++) out[(6 + j) * 32 + i] = d[j];
    }
    {
        unsigned d[2], a[2], b[1], c[2];
        for (int j = 0; j < 2; j++) a[j] = e4m3(4000 + j * 32 + i);
        for (int j = 0; j < 1; j++) b[j] = e4m3(4300 + j * 32 + i);
        for (int j = 0; j < 2; j++) c[j] = f16(4600 + j * 32 + i);
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.e4m3.e4m3.f16 "
                     "{%0, %1}, {%2, %3}, {%4}, {%5, %6};"
                     : "=r"(d[0]), "=r"(d[1])
                     : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(c[0]), "r"(c[1]));
        for (int j = 0; j < 2; j++) out[(8 + j) * 32 + i] = d[j];
    }
    {
        unsigned d[2], a[2], b[1], c[2];
        for (int j = 0; j < 2; j++) a[j] = e4m3(5000 + j * 32 + i);
        for (int j = 0; j < 1; j++) b[j] = e5m2(5300 + j * 32 + i);
        for (int j = 0; j < 2; j++) c[j] = f16(5600 + j * 32 + i);
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.e4m3.e5m2.f16 "
                     "{%0, %1}, {%2, %3}, {%4}, {%5, %6};"
                     : "=r"(d[0]), "=r"(d[1])
                     : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(c[0]), "r"(c[1]));
        for (int j = 0; j < 2; j++) out[(10 + j) * 32 + i] = d[j];
    }
    {
        unsigned d[2], a[2], b[1], c[2];
        for (int j = 0; j < 2; j++) a[j] = e5m2(6000 + j * 32 + i);
        for (int j = 0; j < 1; j++) b[j] = e4m3(6300 + j * 32 + i);
        for (int j = 0; j < 2; j++) c[j] = f16(6600 + j * 32 + i);
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.e5m2.e4m3.f16 "
                     "{%0, %1}, {%2, %3}, {%4}, {%5, %6};"
                     : "=r"(d[0]), "=r"(d[1])
                     : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(c[0]), "r"(c[1]));
        for (int j = 0; j < 2; j++) out[(12 + j) * 32 + i] = d[j];
    }
    {
        unsigned d[2], a[2], b[1], c[2];
        for (int j = 0; j < 2; j++) a[j] = e5m2(7000 + j * 32 + i);
        for (int j = 0; j < 1; j++) b[j] = e5m2(7300 + j * 32 + i);
        for (int j = 0; j < 2; j++) c[j] = f16(7600 + j * 32 + i);
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.e5m2.e5m2.f16 "
                     "{%0, %1}, {%2, %3}, {%4}, {%5, %6};"
                     : "=r"(d[0]), "=r"(d[1])
                     : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(c[0]), "r"(c[1]));
        for (int j = 0; j < 2; j++) out[(14 + j) * 32 + i] = d[j];
    }
}
