// mma.sp of 4-bit integers with ordered positions, whose sums wrap.
// launch: mma_sp_s4 grid 1 block 32
// arg: out u32 1024

__device__ unsigned noise(unsigned i) {
    i = (i + 1) * 2654435761u;
    i = (i ^ i >> 15) * 2246822519u;
    return i ^ i >> 13;
}

__device__ unsigned word(unsigned i) {
    return noise(i);
}

// Eight pairs of different positions among four, the lower first.
__device__ unsigned positions(unsigned digits) {
    const unsigned char pairs[] = {0x4, 0x8, 0xc, 0x9, 0xd, 0xe, 0x4, 0xe};
    unsigned word = 0;
    for (int part = 0; part < 8; part++) word |= pairs[digits >> 3 * part & 7] << 4 * part;
    return word;
}

extern "C" __global__ void mma_sp_s4(unsigned *out) {
    unsigned i = threadIdx.x;
    {
        unsigned d[4], a[2], b[2], c[4];
        for (int j = 0; j < 2; j++) a[j] = word(0 + j * 32 + i);
        for (int j = 0; j < 2; j++) b[j] = word(300 + j * 32 + i);
        for (int j = 0; j < 4; j++) c[j] = word(600 + j * 32 + i);
        unsigned which = positions(noise(900 + i));
        asm volatile("mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32 "
                     "{%0, %1, %2, %3}, {%4, %5}, {%6, %7}, {%8, %9, %10, %11}, %12, 0;"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(which));
        for (int j = 0; j < 4; j++) out[(0 + j) * 32 + i] = d[j];
    }
    {
        unsigned d[4], a[2], b[2], c[4];
        for (int j = 0; j < 2; j++) a[j] = word(1000 + j * 32 + i);
        for (int j = 0; j < 2; j++) b[j] = word(1300 + j * 32 + i);
        for (int j = 0; j < 4; j++) c[j] = word(1600 + j * 32 + i);
        unsigned which = positions(noise(900 + i));
        asm volatile("mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.s32.s4.u4.s32 "
                     "{%0, %1, %2, %3}, {%4, %5}, {%6, %7}, {%8, %9, %10, %11}, %12, 1;"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(which));
        for (int j = 0; j < 4; j++) out[(4 + j) * 32 + i] = d[j];
    }
    {
        unsigned d[4], a[2], b[2], c[4];
        for (int j = 0; j < 2; j++) a[j] = word(2000 + j * 32 + i);
        for (int j = 0; j < 2; j++) b[j] = word(2300 + j * 32 + i);
        for (int j = 0; j < 4; j++) c[j] = word(2600 + j * 32 + i);
        unsigned which = positions(noise(900 + i));
        asm volatile("mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.s32.u4.s4.s32 "
                     "{%0, %1, %2, %3}, {%4, %5}, {%6, %7}, {%8, %9, %10, %11}, %12, 0;"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(which));
        for (int j = 0; j < 4; j++) out[(8 + j) * 32 + i] = d[j];
    }
    {
        unsigned d[4], a[2], b[2], c[4];
        for (int j = 0; j < 2; j++) a[j] = word(3000 + j * 32 + i);
        for (int j = 0; j < 2; j++) b[j] = word(3300 + j * 32 + i);
        for (int j = 0; j < 4; j++) c[j] = word(3600 + j * 32 + i);
        unsigned which = positions(noise(900 + i));
        asm volatile("mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.s32.u4.u4.s32 "
                     "{%0, %1, %2, %3}, {%4, %5}, {%6, %7}, {%8, %9, %10, %11}, %12, 1;"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(which));
        for (int j = 0; j < 4; j++) out[(12 + j) * 32 + i] = d[j];
    }
    {
        unsigned d[4], a[4], b[4], c[4];
        for (int j = 0; j < 4; j++) a[j] = word(4000 + j * 32 + i);
        for (int j = 0; j < 4; j++) b[j] = word(4300 + j * 32 + i);
        for (int j = 0; j < 4; j++) c[j] = word(4600 + j * 32 + i);
        unsigned which = positions(noise(900 + i));
        asm volatile("mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.s32.s4.s4.s32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%12, %13, %14, %15}, %16, 0;"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(which));
        for (int j = 0; j < 4; j++) out[(16 + j) * 32 + i] = d[j];
    }
    {
        unsigned d[4], a[4], b[4], c[4];
        for (int j = 0; j < 4; j++) a[j] = word(5000 + j * 32 + i);
        for (int j = 0; j < 4; j++) b[j] = word(5300 + j * 32 + i);
        for (int j = 0; j < 4; j++) c[j] = word(5600 + j * 32 + i);
        unsigned which = positions(noise(900 + i));
        asm volatile("mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.s32.s4.u4.s32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%12, %13, %14, %15}, %16, 0;"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(which));
        for (int j = 0; j < 4; j++) out[(20 + j) * 32 + i] = d[j];
    }
    {
        unsigned d[4], a[4], b[4], c[4];
        for (int j = 0; j < 4; j++) a[j] = word(6000 + j * 32 + i);
        for (int j = 0; j < 4; j++) b[j] = word(6300 + j * 32 + i);
        for (int j = 0; j < 4; j++) c[j] = word(6600 + j * 32 + i);
        unsigned which = positions(noise(900 + i));
        asm volatile("mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.s32.u4.s4.s32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%12, %13, %14, %15}, %16, 0;"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(which));
        for (int j = 0; j < 4; j++) out[(24 + j) * 32 + i] = d[j];
    }
    {
        unsigned d[4], a[4], b[4], c[4];
        for (int j = 0; j < 4; j++) a[j] = word(7000 + j * 32 + i);
        for (int j = 0; j < 4; j++) b[j] = word(7300 + j * 32 + i);
        for (int j = 0; j < 4; j++) c[j] = word(7600 + j * 32 + i);
        unsigned which = positions(noise(900 + i));
        asm volatile("mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.s32.u4.u4.s32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%12, %13, %14, %15}, %16, 0;"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(which));
        for (int j = 0; j < 4; j++) out[(28 + j) * 32 + i] = d[j];
    }
}
