// mma of f16 with any values: its sums are near those in double precision.
// launch: mma_f16_random grid 1 block 32
// arg: out u32 128
// arg: out u32 128

__device__ unsigned noise(unsigned i) {
    i = (i + 1) * 2654435761u;
    i = (i ^ i >> 15) * 2246822519u;
    return i ^ i >> 13;
}

__device__ unsigned bits(unsigned i) {
    // From 1/16 to 16, of either sign.
    return (noise(i) & 0x83ff) | (0x2c00 + (noise(i) >> 16) % 8 * 0x400);
}

__device__ double value(unsigned bits) {
    double magnitude = __hiloint2double(((bits >> 10 & 31) - 15 + 1023) << 20 | (bits & 0x3ff) << 10, 0);
    return bits & 0x8000 ? -magnitude : magnitude;
}

extern "C" __global__ void mma_f16_random(unsigned *near_enough, unsigned *is_rounded) {
    // Element (row, column) of a fragment is a function of its number, so each thread can compute any sum.
    unsigned i = threadIdx.x, group = i / 4, quad = i % 4;
    unsigned a[4], b[2];
    float d[4];
    for (int j = 0; j < 4; j++) {
        a[j] = 0;
        for (int part = 0; part < 2; part++)
            a[j] |= bits((group + j % 2 * 8) * 16 + (j / 2 * 4 + quad) * 2 + part) << 16 * part;
    }
    for (int j = 0; j < 2; j++) {
        b[j] = 0;
        for (int part = 0; part < 2; part++)
            b[j] |= bits(5000 + ((j * 4 + quad) * 2 + part) * 8 + group) << 16 * part;
    }
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(0.f), "f"(0.f), "f"(0.f), "f"(0.f));
    for (int j = 0; j < 4; j++) {
        unsigned row = group + j / 2 * 8, column = quad * 2 + j % 2;
        double sum = 0, size = 0;
        for (unsigned k = 0; k < 16; k++) {
            double product = value(bits(row * 16 + k)) * value(bits(5000 + k * 8 + column));
            sum += product;
            size += product < 0 ? -product : product;
        }
        double distance = d[j] < sum ? sum - d[j] : d[j] - sum;
        // Every product and every partial sum may lose a unit in the last place of single precision, by truncation.
        near_enough[j * 32 + i] = distance <= size * 16 * 0x1p-22;
        is_rounded[j * 32 + i] = distance <= size * 0x1p-10;
    }
}
