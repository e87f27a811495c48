// mma.sp of 8-bit floats with ordered positions; all sums are exact.
// launch: mma_sp_fp8 grid 1 block 32
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

__device__ unsigned f32(unsigned i) {
    return __float_as_uint((int)(noise(i) & 63) - 32);
}

__device__ unsigned e5m2(unsigned i) {
    const unsigned char numbers[] = {0, 0x3c, 0xbc, 0x40, 0xc0, 0x38, 0xb8, 0x42};
    unsigned word = 0, digits = noise(i);
    for (int part = 0; part < 4; part++) word |= numbers[digits >> 3 * part & 7] << 8 * part;
    return word;
}

// Eight pairs of different positions among four, the lower first.
__device__ unsigned positions(unsigned digits) {
    const unsigned char pairs[] = {0x4, 0x8, 0xc, 0x9, 0xd, 0xe, 0x4, 0xe};
    unsigned word = 0;
    for (int part = 0; part < 8; part++) word |= pairs[digits >> 3 * part & 7] << 4 * part;
    return word;
}

extern "C" __global__ void mma_sp_fp8(unsigned *out) {
    unsigned i = threadIdx.x;
    {
        unsigned d[4], a[4], b[4], c[4];
        for (int j = 0; j < 4; j++) a[j] = e4m3(0 + j * 32 + i);
        for (int j = 0; j < 4; j++) b[j] = e4m3(300 + j * 32 + i);
        for (int j = 0; j < 4; j++) c[j] = f32(600 + j * 32 + i);
        unsigned which = positions(noise(900 + i));
        asm volatile("mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.f32.e4m3.e4m3.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%12, %13, %14, %15}, %16, 0;"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(which));
        for (int j = 0; j < 4; j++) out[(0 + j) * 32 + i] = d[j];
    }
    {
        unsigned d[4], a[4], b[4], c[4];
        for (int j = 0; j < 4; j++) a[j] = e4m3(1000 + j * 32 + i);
        for (int j = 0; j < 4; j++) b[j] = e5m2(1300 + j * 32 + i);
        for (int j = 0; j < 4; j++) c[j] = f32(1600 + j * 32 + i);
        unsigned which = positions(noise(900 + i));
        asm volatile("mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.f32.e4m3.e5m2.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%12, %13, %14, %15}, %16, 0;"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(which));
        for (int j = 0; j < 4; j++) out[(4 + j) * 32 + i] = d[j];
    }
    {
        unsigned d[4], a[4], b[4], c[4];
        for (int j = 0; j < 4; j++) a[j] = e5m2(2000 + j * 32 + i);
        for (int j = 0; j < 4; j++) b[j] = e4m3(2300 + j * 32 + i);
        for (int j = 0; j < 4; j++) c[j] = f32(2600 + j * 32 + i);
        unsigned which = positions(noise(900 + i));
        asm volatile("mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.f32.e5m2.e4m3.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%12, %13, %14, %15}, %16, 0;"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(which));
        for (int j = 0; j < 4; j++) out[(8 + j) * 32 + i] = d[j];
    }
    {
        unsigned d[4], a[4], b[4], c[4];
        for (int j = 0; j < 4; j++) a[j] = e5m2(3000 + j * 32 + i);
        for (int j = 0; j < 4; j++) b[j] = e5m2(3300 + j * 32 + i);
        for (int j = 0; j < 4; j++) c[j] = f32(3600 + j * 32 + i);
        unsigned which = positions(noise(900 + i));
        asm volatile("mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.f32.e5m2.e5m2.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%12, %13, %14, %15}, %16, 0;"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(which));
        for (int j = 0; j < 4; j++) out[(12 + j) * 32 + i] = d[j];
    }
}
