// mma.sp of tf32 without the promise that positions are ordered; all sums are exact.
// launch: mma_sp_tf32_any grid 1 block 32
// arg: out u32 768

__device__ unsigned noise(unsigned i) {
    i = (i + 1) * 2654435761u;
    i = (i ^ i >> 15) * 2246822519u;
    return i ^ i >> 13;
}

__device__ unsigned tf32(unsigned i) {
    const unsigned short numbers[] = {0, 0x3f80, 0xbf80, 0x4000, 0xc000, 0x3f00, 0xbf00, 0x4040};
    return numbers[noise(i) & 7] << 16;
}

__device__ unsigned f32(unsigned i) {
    return __float_as_uint((int)(noise(i) & 63) - 32);
}

// Eight positions of a tf32 among two.
__device__ unsigned positions(unsigned digits) {
    unsigned word = 0;
    for (int part = 0; part < 8; part++) word |= (digits >> part & 1 ? 0xe : 0x4) << 4 * part;
    return word;
}

extern "C" __global__ void mma_sp_tf32_any(unsigned *out) {
    unsigned i = threadIdx.x;
    {
        unsigned d[4], a[2], b[2], c[4];
        for (int j = 0; j < 2; j++) a[j] = tf32(0 + j * 32 + i);
        for (int j = 0; j < 2; j++) b[j] = tf32(300 + j * 32 + i);
        for (int j = 0; j < 4; j++) c[j] = f32(600 + j * 32 + i);
        unsigned which = positions(noise(900 + i));
        asm volatile("mma.sp.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                     "{%0, %1, %2, %3}, {%4, %5}, {%6, %7}, {%8, %9, %10, %11}, %12, 0;"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(which));
        for (int j = 0; j < 4; j++) out[(0 + j) * 32 + i] = d[j];
    }
    {
        unsigned d[4], a[2], b[2], c[4];
        for (int j = 0; j < 2; j++) a[j] = tf32(1000 + j * 32 + i);
        for (int j = 0; j < 2; j++) b[j] = tf32(1300 + j * 32 + i);
        for (int j = 0; j < 4; j++) c[j] = f32(1600 + j * 32 + i);
        unsigned which = positions(noise(900 + i));
        asm volatile("mma.sp.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                     "{%0, %1, %2, %3}, {%4, %5}, {%6, %7}, {%8, %9, %10, %11}, %12, 1;"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(which));
        for (int j = 0; j < 4; j++) out[(4 + j) * 32 + i] = d[j];
    }
    {
        unsigned d[4], a[2], b[2], c[4];
        for (int j = 0; j < 2; j++) a[j] = tf32(2000 + j * 32 + i);
        for (int j = 0; j < 2; j++) b[j] = tf32(2300 + j * 32 + i);
        for (int j = 0; j < 4; j++) c[j] = f32(2600 + j * 32 + i);
        unsigned which = positions(noise(900 + i));
        asm volatile("mma.sp.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                     "{%0, %1, %2, %3}, {%4, %5}, {%6, %7}, {%8, %9, %10, %11}, %12, 2;"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(which));
        for (int j = 0; j < 4; j++) out[(8 + j) * 32 + i] = d[j];
    }
    {
        unsigned d[4], a[2], b[2], c[4];
        for (int j = 0; j < 2; j++) a[j] = tf32(3000 + j * 32 + i);
        for (int j = 0; j < 2; j++) b[j] = tf32(3300 + j * 32 + i);
        for (int j = 0; j < 4; j++) c[j] = f32(3600 + j * 32 + i);
        unsigned which = positions(noise(900 + i));
        asm volatile("mma.sp.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                     "{%0, %1, %2, %3}, {%4, %5}, {%6, %7}, {%8, %9, %10, %11}, %12, 3;"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(which));
        for (int j = 0; j < 4; j++) out[(12 + j) * 32 + i] = d[j];
    }
    {
        unsigned d[4], a[4], b[4], c[4];
        for (int j = 0; j < 4; j++) a[j] = tf32(4000 + j * 32 + i);
        for (int j = 0; j < 4; j++) b[j] = tf32(4300 + j * 32 + i);
        for (int j = 0; j < 4; j++) c[j] = f32(4600 + j * 32 + i);
        unsigned which = positions(noise(900 + i));
        asm volatile("mma.sp.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%12, %13, %14, %15}, %16, 0;"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(which));
        for (int j = 0; j < 4; j++) out[(16 + j) * 32 + i] = d[j];
    }
    {
        unsigned d[4], a[4], b[4], c[4];
        for (int j = 0; j < 4; j++) a[j] = tf32(5000 + j * 32 + i);
        for (int j = 0; j < 4; j++) b[j] = tf32(5300 + j * 32 + i);
        for (int j = 0; j < 4; j++) c[j] = f32(5600 + j * 32 + i);
        unsigned which = positions(noise(900 + i));
        asm volatile("mma.sp.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%12, %13, %14, %15}, %16, 1;"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(which));
        for (int j = 0; j < 4; j++) out[(20 + j) * 32 + i] = d[j];
    }
}
