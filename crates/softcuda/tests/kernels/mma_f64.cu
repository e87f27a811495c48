// mma of f64 in its four shapes; all sums are exact.
// launch: mma_f64 grid 1 block 32
// arg: out f64 448

__device__ unsigned noise(unsigned i) {
    i = (i + 1) * 2654435761u;
    i = (i ^ i >> 15) * 2246822519u;
    return i ^ i >> 13;
}

__device__ double f64(unsigned i) {
    return ((int)(noise(i) & 63) - 32) * 0.25;
}

extern "C" __global__ void mma_f64(double *out) {
    unsigned i = threadIdx.x;
    {
        double d[2], a[1], b[1], c[2];
        for (int j = 0; j < 1; j++) a[j] = f64(0 + j * 32 + i);
        for (int j = 0; j < 1; j++) b[j] = f64(300 + j * 32 + i);
        for (int j = 0; j < 2; j++) c[j] = f64(600 + j * 32 + i);
        asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 "
                     "{%0, %1}, {%2}, {%3}, {%4, %5};"
                     : "=d"(d[0]), "=d"(d[1])
                     : "d"(a[0]), "d"(b[0]), "d"(c[0]), "d"(c[1]));
        for (int j = 0; j < 2; j++) out[(0 + j) * 32 + i] = d[j];
    }
    {
        double d[4], a[2], b[1], c[4];
        for (int j = 0; j < 2; j++) a[j] = f64(1000 + j * 32 + i);
        for (int j = 0; j < 1; j++) b[j] = f64(1300 + j * 32 + i);
        for (int j = 0; j < 4; j++) c[j] = f64(1600 + j * 32 + i);
        asm volatile("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 "
                     "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"
                     : "=d"(d[0]), "=d"(d[1]), "=d"(d[2]), "=d"(d[3])
                     : "d"(a[0]), "d"(a[1]), "d"(b[0]), "d"(c[0]), "d"(c[1]), "d"(c[2]), "d"(c[3]));
        for (int j = 0; j < 4; j++) out[(2 + j) * 32 + i] = d[j];
    }
    {
        double d[4], a[4], b[2], c[4];
        for (int j = 0; j < 4; j++) a[j] = f64(2000 + j * 32 + i);
        for (int j = 0; j < 2; j++) b[j] = f64(2300 + j * 32 + i);
        for (int j = 0; j < 4; j++) c[j] = f64(2600 + j * 32 + i);
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
                     : "=d"(d[0]), "=d"(d[1]), "=d"(d[2]), "=d"(d[3])
                     : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]), "d"(c[0]), "d"(c[1]), "d"(c[2]), "d"(c[3]));
        for (int j = 0; j < 4; j++) out[(6 + j) * 32 + i] = d[j];
    }
    {
        double d[4], a[8], b[4], c[4];
        for (int j = 0; j < 8; j++) a[j] = f64(3000 + j * 32 + i);
        for (int j = 0; j < 4; j++) b[j] = f64(3300 + j * 32 + i);
        for (int j = 0; j < 4; j++) c[j] = f64(3600 + j * 32 + i);
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7, %8, %9, %10, %11}, {%12, %13, %14, %15}, {%16, %17, %18, %19};"
                     : "=d"(d[0]), "=d"(d[1]), "=d"(d[2]), "=d"(d[3])
                     : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]), "d"(a[7]), "d"(b[0]), "d"(b[1]), "d"(b[2]), "d"(b[3]), "d"(c[0]), "d"(c[1]), "d"(c[2]), "d"(c[3]));
        for (int j = 0; j < 4; j++) out[(10 + j) * 32 + i] = d[j];
    }
}
