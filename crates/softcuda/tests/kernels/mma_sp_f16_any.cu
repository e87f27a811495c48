// mma.sp of f16 and bf16 without the promise that positions are ordered; all sums are exact.
// launch: mma_sp_f16_any grid 1 block 32
// arg: out u32 640

__device__ unsigned noise(unsigned i) {
    i = (i + 1) * 2654435761u;
    i = (i ^ i >> 15) * 2246822519u;
    return i ^ i >> 13;
}

__device__ unsigned f16(unsigned i) {
    const unsigned short numbers[] = {0, 0x3c00, 0xbc00, 0x4000, 0xc000, 0x3800, 0xb800, 0x4200};
    return numbers[noise(i) & 7] | numbers[noise(i) >> 3 & 7] << 16;
}

__device__ unsigned f32(unsigned i) {
    return __float_as_uint((int)(noise(i) & 63) - 32);
}

__device__ unsigned bf16(unsigned i) {
    const unsigned short numbers[] = {0, 0x3f80, 0xbf80, 0x4000, 0xc000, 0x3f00, 0xbf00, 0x4040};
    return numbers[noise(i) & 7] | numbers[noise(i) >> 3 & 7] << 16;
}

// Eight pairs of different positions among four, the lower first.
__device__ unsigned positions(unsigned digits) {
    const unsigned char pairs[] = {0x4, 0x8, 0xc, 0x9, 0xd, 0xe, 0x4, 0xe};
    unsigned word = 0;
    for (int part = 0; part < 8; part++) word |= pairs[digits >> 3 * part & 7] << 4 * part;
    return word;
}

extern "C" __global__ void mma_sp_f16_any(unsigned *out) {
    unsigned i = threadIdx.x;
    {
        unsigned d[2], a[2], b[2], c[2];
        for (int j = 0; j < 2; j++) a[j] = f16(0 + j * 32 + i);
        for (int j = 0; j < 2; j++) b[j] = f16(300 + j * 32 + i);
        for (int j = 0; j < 2; j++) c[j] = f16(600 + j * 32 + i);
        unsigned which = positions(noise(900 + i));
        asm volatile("mma.sp.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 "
                     "{%0, %1}, {%2, %3}, {%4, %5}, {%6, %7}, %8, 1;"
                     : "=r"(d[0]), "=r"(d[1])
                     : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]), "r"(which));
        for (int j = 0; j < 2; j++) out[(0 + j) * 32 + i] = d[j];
    }
    {
        unsigned d[4], a[2], b[2], c[4];
        for (int j = 0; j < 2; j++) a[j] = f16(1000 + j * 32 + i);
        for (int j = 0; j < 2; j++) b[j] = f16(1300 + j * 32 + i);
        for (int j = 0; j < 4; j++) c[j] = f32(1600 + j * 32 + i);
        unsigned which = positions(noise(900 + i));
        asm volatile("mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5}, {%6, %7}, {%8, %9, %10, %11}, %12, 2;"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(which));
        for (int j = 0; j < 4; j++) out[(2 + j) * 32 + i] = d[j];
    }
    {
        unsigned d[2], a[4], b[4], c[2];
        for (int j = 0; j < 4; j++) a[j] = f16(2000 + j * 32 + i);
        for (int j = 0; j < 4; j++) b[j] = f16(2300 + j * 32 + i);
        for (int j = 0; j < 2; j++) c[j] = f16(2600 + j * 32 + i);
        unsigned which = positions(noise(900 + i));
        asm volatile("mma.sp.sync.aligned.m16n8k32.row.col.f16.f16.f16.f16 "
                     "{%0, %1}, {%2, %3, %4, %5}, {%6, %7, %8, %9}, {%10, %11}, %12, 0;"
                     : "=r"(d[0]), "=r"(d[1])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(c[0]), "r"(c[1]), "r"(which));
        for (int j = 0; j < 2; j++) out[(6 + j) * 32 + i] = d[j];
    }
    {
        unsigned d[4], a[4], b[4], c[4];
        for (int j = 0; j < 4; j++) a[j] = f16(3000 + j * 32 + i);
        for (int j = 0; j < 4; j++) b[j] = f16(3300 + j * 32 + i);
        for (int j = 0; j < 4; j++) c[j] = f32(3600 + j * 32 + i);
        unsigned which = positions(noise(900 + i));
        asm volatile("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%12, %13, %14, %15}, %16, 1;"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(which));
        for (int j = 0; j < 4; j++) out[(8 + j) * 32 + i] = d[j];
    }
    {
        unsigned d[4], a[2], b[2], c[4];
        for (int j = 0; j < 2; j++) a[j] = bf16(4000 + j * 32 + i);
        for (int j = 0; j < 2; j++) b[j] = bf16(4300 + j * 32 + i);
        for (int j = 0; j < 4; j++) c[j] = f32(4600 + j * 32 + i);
        unsigned which = positions(noise(900 + i));
        asm volatile("mma.sp.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5}, {%6, %7}, {%8, %9, %10, %11}, %12, 3;"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(which));
        for (int j = 0; j < 4; j++) out[(12 + j) * 32 + i] = d[j];
    }
    {
        unsigned d[4], a[4], b[4], c[4];
        for (int j = 0; j < 4; j++) a[j] = bf16(5000 + j * 32 + i);
        for (int j = 0; j < 4; j++) b[j] = bf16(5300 + j * 32 + i);
        for (int j = 0; j < 4; j++) c[j] = f32(5600 + j * 32 + i);
        unsigned which = positions(noise(900 + i));
        asm volatile("mma.sp.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%12, %13, %14, %15}, %16, 1;"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(which));
        for (int j = 0; j < 4; j++) out[(16 + j) * 32 + i] = d[j];
    }
}
