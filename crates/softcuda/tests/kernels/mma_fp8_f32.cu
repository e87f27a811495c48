// mma of 8-bit floats with sums of f32; all sums are exact.
// launch: mma_fp8_f32 grid 1 block 32
// arg: out u32 1024

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

__device__ unsigned f32(unsigned i) {
    return __float_as_uint((int)(noise(i) & 63) - 32);
}

__device__ unsigned e5m2(unsigned i) {
    const unsigned char numbers[] = {0, 0x3c, 0xbc, 0x40, 0xc0, 0x38, 0xb8, 0x42};
    unsigned word = 0, digits = noise(i);
    for (int part = 0; part < 4; part++) word |= numbers[digits >> 3 * part & 7] << 8 * part;
    return word;
}

extern "C" __global__ void mma_fp8_f32(unsigned *out) {
    unsigned i = threadIdx.x;
    {
        unsigned d[4], a[4], b[2], c[4];
        for (int j = 0; j < 4; j++) a[j] = e4m3(0 + j * 32 + i);
        for (int j = 0; j < 2; j++) b[j] = e4m3(300 + j * 32 + i);
        for (int j = 0; j < 4; j++) c[j] = f32(600 + j * 32 + i);
        asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
        for (int j = 0; j < 4; j++) out[(0 + j) * 32 + i] = d[j];
    }
    {
        unsigned d[4], a[4], b[2], c[4];
        for (int j = 0; j < 4; j++) a[j] = e4m3(1000 + j * 32 + i);
        for (int j = 0; j < 2; j++) b[j] = e5m2(1300 + j * 32 + i);
        for (int j = 0; j < 4; j++) c[j] = f32(1600 + j * 32 + i);
        asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
        for (int j = 0; j < 4; j++) out[(4 + j) * 32 + i] = d[j];
    }
    {
        unsigned d[4], a[4], b[2], c[4];
        for (int j = 0; j < 4; j++) a[j] = e5m2(2000 + j * 32 + i);
        for (int j = 0; j < 2; j++) b[j] = e4m3(2300 + j * 32 + i);
        for (int j = 0; j < 4; j++) c[j] = f32(2600 + j * 32 + i);
        asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e4m3.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
        for (int j = 0; j < 4; j++) out[(8 + j) * 32 + i] = d[j];
    }
    {
        unsigned d[4], a[4], b[2], c[4];
        for (int j = 0; j < 4; j++) a[j] = e5m2(3000 + j * 32 + i);
        for (int j = 0; j < 2; j++) b[j] = e5m2(3300 + j * 32 + i);
        for (int j = 0; j < 4; j++) c[j] = f32(3600 + j * 32 + i);
        asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
        for (int j = 0; j < 4; j++) out[(12 + j) * 32 + i] = d[j];
    }
    {
        unsigned d[4], a[2], b[1], c[4];
        for (int j = 0; j < 2; j++) a[j] = e4m3(4000 + j * 32 + i);
        for (int j = 0; j < 1; j++) b[j] = e4m3(4300 + j * 32 + i);
        for (int j = 0; j < 4; j++) c[j] = f32(4600 + j * 32 + i);
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.e4m3.e4m3.f32 "
                     "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
        for (int j = 0; j < 4; j++) out[(16 + j) * 32 + i] = d[j];
    }
    {
        unsigned d[4], a[2], b[1], c[4];
        for (int j = 0; j < 2; j++) a[j] = e4m3(5000 + j * 32 + i);
        for (int j = 0; j < 1; j++) b[j] = e5m2(5300 + j * 32 + i);
        for (int j = 0; j < 4; j++) c[j] = f32(5600 + j * 32 + i);
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.e4m3.e5m2.f32 "
                     "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
        for (int j = 0; j < 4; j++) out[(20 + j) * 32 + i] = d[j];
    }
    {
        unsigned d[4], a[2], b[1], c[4];
        for (int j = 0; j < 2; j++) a[j] = e5m2(6000 + j * 32 + i);
        for (int j = 0; j < 1; j++) b[j] = e4m3(6300 + j * 32 + i);
        for (int j = 0; j < 4; j++) c[j] = f32(6600 + j * 32 + i);
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.e5m2.e4m3.f32 "
                     "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
        for (int j = 0; j < 4; j++) out[(24 + j) * 32 + i] = d[j];
    }
    {
        unsigned d[4], a[2], b[1], c[4];
        for (int j = 0; j < 2; j++) a[j] = e5m2(7000 + j * 32 + i);
        for (int j = 0; j < 1; j++) b[j] = e5m2(7300 + j * 32 + i);
        for (int j = 0; j < 4; j++) c[j] = f32(7600 + j * 32 + i);
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.e5m2.e5m2.f32 "
                     "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
        for (int j = 0; j < 4; j++) out[(28 + j) * 32 + i] = d[j];
    }
}
