// wmma of f64 in every layout; all sums are exact.
// launch: wmma_f64 grid 1 block 32
// arg: out f64 512

__device__ unsigned noise(unsigned i) {
    i = (i + 1) * 2654435761u;
    i = (i ^ i >> 15) * 2246822519u;
    return i ^ i >> 13;
}

__device__ double f64(unsigned i) {
    return ((int)(noise(i) & 63) - 32) * 0.25;
}

extern "C" __global__ void wmma_f64(double *out) {
    __shared__ __align__(32) double a[32], b[32], c[64];
    unsigned at_a = (unsigned)__cvta_generic_to_shared(a), at_b = (unsigned)__cvta_generic_to_shared(b);
    unsigned at_c = (unsigned)__cvta_generic_to_shared(c), i = threadIdx.x;
    {
        double ra[1], rb[1], rc[2], rd[2];
        for (int j = i; j < 32; j += 32) a[j] = f64(0 + j);
        for (int j = i; j < 32; j += 32) b[j] = f64(700 + j);
        for (int j = i; j < 64; j += 32) c[j] = f64(1300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.row.m8n8k4.shared.f64 {%0}, [%1], %2;"
                     : "=d"(ra[0]) : "r"(at_a), "r"(4) : "memory");
        asm volatile("wmma.load.b.sync.aligned.row.m8n8k4.shared.f64 {%0}, [%1], %2;"
                     : "=d"(rb[0]) : "r"(at_b), "r"(8) : "memory");
        asm volatile("wmma.load.c.sync.aligned.row.m8n8k4.shared.f64 {%0, %1}, [%2], %3;"
                     : "=d"(rc[0]), "=d"(rc[1]) : "r"(at_c), "r"(8) : "memory");
        asm volatile("wmma.mma.sync.aligned.row.row.m8n8k4.f64.f64.f64.f64 "
                     "{%0, %1}, {%2}, {%3}, {%4, %5};"
                     : "=d"(rd[0]), "=d"(rd[1]) : "d"(ra[0]), "d"(rb[0]), "d"(rc[0]), "d"(rc[1]));
        asm volatile("wmma.store.d.sync.aligned.row.m8n8k4.global.f64 [%2], {%0, %1}, %3;"
                     :: "d"(rd[0]), "d"(rd[1]), "l"(out + 0), "r"(8) : "memory");
        __syncwarp();
    }
    {
        double ra[1], rb[1], rc[2], rd[2];
        for (int j = i; j < 32; j += 32) a[j] = f64(2000 + j);
        for (int j = i; j < 32; j += 32) b[j] = f64(2700 + j);
        for (int j = i; j < 64; j += 32) c[j] = f64(3300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.row.m8n8k4.shared.f64 {%0}, [%1], %2;"
                     : "=d"(ra[0]) : "r"(at_a), "r"(4) : "memory");
        asm volatile("wmma.load.b.sync.aligned.row.m8n8k4.shared.f64 {%0}, [%1], %2;"
                     : "=d"(rb[0]) : "r"(at_b), "r"(8) : "memory");
        asm volatile("wmma.load.c.sync.aligned.col.m8n8k4.shared.f64 {%0, %1}, [%2], %3;"
                     : "=d"(rc[0]), "=d"(rc[1]) : "r"(at_c), "r"(8) : "memory");
        asm volatile("wmma.mma.sync.aligned.row.row.m8n8k4.rn.f64.f64.f64.f64 "
                     "{%0, %1}, {%2}, {%3}, {%4, %5};"
                     : "=d"(rd[0]), "=d"(rd[1]) : "d"(ra[0]), "d"(rb[0]), "d"(rc[0]), "d"(rc[1]));
        asm volatile("wmma.store.d.sync.aligned.col.m8n8k4.global.f64 [%2], {%0, %1}, %3;"
                     :: "d"(rd[0]), "d"(rd[1]), "l"(out + 64), "r"(8) : "memory");
        __syncwarp();
    }
    {
        double ra[1], rb[1], rc[2], rd[2];
        for (int j = i; j < 32; j += 32) a[j] = f64(4000 + j);
        for (int j = i; j < 32; j += 32) b[j] = f64(4700 + j);
        for (int j = i; j < 64; j += 32) c[j] = f64(5300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.row.m8n8k4.shared.f64 {%0}, [%1], %2;"
                     : "=d"(ra[0]) : "r"(at_a), "r"(4) : "memory");
        asm volatile("wmma.load.b.sync.aligned.col.m8n8k4.shared.f64 {%0}, [%1], %2;"
                     : "=d"(rb[0]) : "r"(at_b), "r"(4) : "memory");
        asm volatile("wmma.load.c.sync.aligned.row.m8n8k4.shared.f64 {%0, %1}, [%2], %3;"
                     : "=d"(rc[0]), "=d"(rc[1]) : "r"(at_c), "r"(8) : "memory");
        asm volatile("wmma.mma.sync.aligned.row.col.m8n8k4.f64.f64.f64.f64 "
                     "{%0, %1}, {%2}, {%3}, {%4, %5};"
                     : "=d"(rd[0]), "=d"(rd[1]) : "d"(ra[0]), "d"(rb[0]), "d"(rc[0]), "d"(rc[1]));
        asm volatile("wmma.store.d.sync.aligned.row.m8n8k4.global.f64 [%2], {%0, %1}, %3;"
                     :: "d"(rd[0]), "d"(rd[1]), "l"(out + 128), "r"(8) : "memory");
        __syncwarp();
    }
    {
        double ra[1], rb[1], rc[2], rd[2];
        for (int j = i; j < 32; j += 32) a[j] = f64(6000 + j);
        for (int j = i; j < 32; j += 32) b[j] = f64(6700 + j);
        for (int j = i; j < 64; j += 32) c[j] = f64(7300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.row.m8n8k4.shared.f64 {%0}, [%1], %2;"
                     : "=d"(ra[0]) : "r"(at_a), "r"(4) : "memory");
        asm volatile("wmma.load.b.sync.aligned.col.m8n8k4.shared.f64 {%0}, [%1], %2;"
                     : "=d"(rb[0]) : "r"(at_b), "r"(4) : "memory");
        asm volatile("wmma.load.c.sync.aligned.col.m8n8k4.shared.f64 {%0, %1}, [%2], %3;"
                     : "=d"(rc[0]), "=d"(rc[1]) : "r"(at_c), "r"(8) : "memory");
        asm volatile("wmma.mma.sync.aligned.row.col.m8n8k4.rn.f64.f64.f64.f64 "
                     "{%0, %1}, {%2}, {%3}, {%4, %5};"
                     : "=d"(rd[0]), "=d"(rd[1]) : "d"(ra[0]), "d"(rb[0]), "d"(rc[0]), "d"(rc[1]));
        asm volatile("wmma.store.d.sync.aligned.col.m8n8k4.global.f64 [%2], {%0, %1}, %3;"
                     :: "d"(rd[0]), "d"(rd[1]), "l"(out + 192), "r"(8) : "memory");
        __syncwarp();
    }
    {
        double ra[1], rb[1], rc[2], rd[2];
        for (int j = i; j < 32; j += 32) a[j] = f64(8000 + j);
        for (int j = i; j < 32; j += 32) b[j] = f64(8700 + j);
        for (int j = i; j < 64; j += 32) c[j] = f64(9300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.col.m8n8k4.shared.f64 {%0}, [%1], %2;"
                     : "=d"(ra[0]) : "r"(at_a), "r"(8) : "memory");
        asm volatile("wmma.load.b.sync.aligned.row.m8n8k4.shared.f64 {%0}, [%1], %2;"
                     : "=d"(rb[0]) : "r"(at_b), "r"(8) : "memory");
        asm volatile("wmma.load.c.sync.aligned.row.m8n8k4.shared.f64 {%0, %1}, [%2], %3;"
                     : "=d"(rc[0]), "=d"(rc[1]) : "r"(at_c), "r"(8) : "memory");
        asm volatile("wmma.mma.sync.aligned.col.row.m8n8k4.f64.f64.f64.f64 "
                     "{%0, %1}, {%2}, {%3}, {%4, %5};"
                     : "=d"(rd[0]), "=d"(rd[1]) : "d"(ra[0]), "d"(rb[0]), "d"(rc[0]), "d"(rc[1]));
        asm volatile("wmma.store.d.sync.aligned.row.m8n8k4.global.f64 [%2], {%0, %1}, %3;"
                     :: "d"(rd[0]), "d"(rd[1]), "l"(out + 256), "r"(8) : "memory");
        __syncwarp();
    }
    {
        double ra[1], rb[1], rc[2], rd[2];
        for (int j = i; j < 32; j += 32) a[j] = f64(10000 + j);
        for (int j = i; j < 32; j += 32) b[j] = f64(10700 + j);
        for (int j = i; j < 64; j += 32) c[j] = f64(11300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.col.m8n8k4.shared.f64 {%0}, [%1], %2;"
                     : "=d"(ra[0]) : "r"(at_a), "r"(8) : "memory");
        asm volatile("wmma.load.b.sync.aligned.row.m8n8k4.shared.f64 {%0}, [%1], %2;"
                     : "=d"(rb[0]) : "r"(at_b), "r"(8) : "memory");
        asm volatile("wmma.load.c.sync.aligned.col.m8n8k4.shared.f64 {%0, %1}, [%2], %3;"
                     : "=d"(rc[0]), "=d"(rc[1]) : "r"(at_c), "r"(8) : "memory");
        asm volatile("wmma.mma.sync.aligned.col.row.m8n8k4.rn.f64.f64.f64.f64 "
                     "{%0, %1}, {%2}, {%3}, {%4, %5};"
                     : "=d"(rd[0]), "=d"(rd[1]) : "d"(ra[0]), "d"(rb[0]), "d"(rc[0]), "d"(rc[1]));
        asm volatile("wmma.store.d.sync.aligned.col.m8n8k4.global.f64 [%2], {%0, %1}, %3;"
                     :: "d"(rd[0]), "d"(rd[1]), "l"(out + 320), "r"(8) : "memory");
        __syncwarp();
    }
    {
        double ra[1], rb[1], rc[2], rd[2];
        for (int j = i; j < 32; j += 32) a[j] = f64(12000 + j);
        for (int j = i; j < 32; j += 32) b[j] = f64(12700 + j);
        for (int j = i; j < 64; j += 32) c[j] = f64(13300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.col.m8n8k4.shared.f64 {%0}, [%1], %2;"
                     : "=d"(ra[0]) : "r"(at_a), "r"(8) : "memory");
        asm volatile("wmma.load.b.sync.aligned.col.m8n8k4.shared.f64 {%0}, [%1], %2;"
                     : "=d"(rb[0]) : "r"(at_b), "r"(4) : "memory");
        asm volatile("wmma.load.c.sync.aligned.row.m8n8k4.shared.f64 {%0, %1}, [%2], %3;"
                     : "=d"(rc[0]), "=d"(rc[1]) : "r"(at_c), "r"(8) : "memory");
        asm volatile("wmma.mma.sync.aligned.col.col.m8n8k4.f64.f64.f64.f64 "
                     "{%0, %1}, {%2}, {%3}, {%4, %5};"
                     : "=d"(rd[0]), "=d"(rd[1]) : "d"(ra[0]), "d"(rb[0]), "d"(rc[0]), "d"(rc[1]));
        asm volatile("wmma.store.d.sync.aligned.row.m8n8k4.global.f64 [%2], {%0, %1}, %3;"
                     :: "d"(rd[0]), "d"(rd[1]), "l"(out + 384), "r"(8) : "memory");
        __syncwarp();
    }
    {
        double ra[1], rb[1], rc[2], rd[2];
        for (int j = i; j < 32; j += 32) a[j] = f64(14000 + j);
        for (int j = i; j < 32; j += 32) b[j] = f64(14700 + j);
        for (int j = i; j < 64; j += 32) c[j] = f64(15300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.col.m8n8k4.shared.f64 {%0}, [%1], %2;"
                     : "=d"(ra[0]) : "r"(at_a), "r"(8) : "memory");
        asm volatile("wmma.load.b.sync.aligned.col.m8n8k4.shared.f64 {%0}, [%1], %2;"
                     : "=d"(rb[0]) : "r"(at_b), "r"(4) : "memory");
        asm volatile("wmma.load.c.sync.aligned.col.m8n8k4.shared.f64 {%0, %1}, [%2], %3;"
                     : "=d"(rc[0]), "=d"(rc[1]) : "r"(at_c), "r"(8) : "memory");
        asm volatile("wmma.mma.sync.aligned.col.col.m8n8k4.rn.f64.f64.f64.f64 "
                     "{%0, %1}, {%2}, {%3}, {%4, %5};"
                     : "=d"(rd[0]), "=d"(rd[1]) : "d"(ra[0]), "d"(rb[0]), "d"(rc[0]), "d"(rc[1]));
        asm volatile("wmma.store.d.sync.aligned.col.m8n8k4.global.f64 [%2], {%0, %1}, %3;"
                     :: "d"(rd[0]), "d"(rd[1]), "l"(out + 448), "r"(8) : "memory");
        __syncwarp();
    }
}
