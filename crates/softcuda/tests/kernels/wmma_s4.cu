// wmma of 4-bit integers, wrapping and clamped.
// launch: wmma_s4 grid 1 block 32
// arg: out u32 512

__device__ unsigned noise(unsigned i) {
    i = (i + 1) * 2654435761u;
    i = (i ^ i >> 15) * 2246822519u;
    return i ^ i >> 13;
}

__device__ unsigned word(unsigned i) {
    return noise(i);
}

extern "C" __global__ void wmma_s4(unsigned *out) {
    __shared__ __align__(32) unsigned a[32], b[32], c[64];
    unsigned at_a = (unsigned)__cvta_generic_to_shared(a), at_b = (unsigned)__cvta_generic_to_shared(b);
    unsigned at_c = (unsigned)__cvta_generic_to_shared(c), i = threadIdx.x;
    {
        unsigned ra[1], rb[1], rc[2], rd[2];
        for (int j = i; j < 32; j += 32) a[j] = word(0 + j);
        for (int j = i; j < 32; j += 32) b[j] = word(700 + j);
        for (int j = i; j < 64; j += 32) c[j] = word(1300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.row.m8n8k32.shared.s4 {%0}, [%1], %2;"
                     : "=r"(ra[0]) : "r"(at_a), "r"(32) : "memory");
        asm volatile("wmma.load.b.sync.aligned.col.m8n8k32.shared.s4 {%0}, [%1], %2;"
                     : "=r"(rb[0]) : "r"(at_b), "r"(32) : "memory");
        asm volatile("wmma.load.c.sync.aligned.row.m8n8k32.shared.s32 {%0, %1}, [%2], %3;"
                     : "=r"(rc[0]), "=r"(rc[1]) : "r"(at_c), "r"(8) : "memory");
        asm volatile("wmma.mma.sync.aligned.row.col.m8n8k32.s32.s4.s4.s32 "
                     "{%0, %1}, {%2}, {%3}, {%4, %5};"
                     : "=r"(rd[0]), "=r"(rd[1]) : "r"(ra[0]), "r"(rb[0]), "r"(rc[0]), "r"(rc[1]));
        asm volatile("wmma.store.d.sync.aligned.row.m8n8k32.global.s32 [%2], {%0, %1}, %3;"
                     :: "r"(rd[0]), "r"(rd[1]), "l"(out + 0), "r"(8) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[1], rb[1], rc[2], rd[2];
        for (int j = i; j < 32; j += 32) a[j] = word(2000 + j);
        for (int j = i; j < 32; j += 32) b[j] = word(2700 + j);
        for (int j = i; j < 64; j += 32) c[j] = word(3300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.row.m8n8k32.shared.s4 {%0}, [%1], %2;"
                     : "=r"(ra[0]) : "r"(at_a), "r"(32) : "memory");
        asm volatile("wmma.load.b.sync.aligned.col.m8n8k32.shared.s4 {%0}, [%1], %2;"
                     : "=r"(rb[0]) : "r"(at_b), "r"(32) : "memory");
        asm volatile("wmma.load.c.sync.aligned.row.m8n8k32.shared.s32 {%0, %1}, [%2], %3;"
                     : "=r"(rc[0]), "=r"(rc[1]) : "r"(at_c), "r"(8) : "memory");
        asm volatile("wmma.mma.sync.aligned.row.col.m8n8k32.s32.s4.s4.s32.satfinite "
                     "{%0, %1}, {%2}, {%3}, {%4, %5};"
                     : "=r"(rd[0]), "=r"(rd[1]) : "r"(ra[0]), "r"(rb[0]), "r"(rc[0]), "r"(rc[1]));
        asm volatile("wmma.store.d.sync.aligned.row.m8n8k32.global.s32 [%2], {%0, %1}, %3;"
                     :: "r"(rd[0]), "r"(rd[1]), "l"(out + 64), "r"(8) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[1], rb[1], rc[2], rd[2];
        for (int j = i; j < 32; j += 32) a[j] = word(4000 + j);
        for (int j = i; j < 32; j += 32) b[j] = word(4700 + j);
        for (int j = i; j < 64; j += 32) c[j] = word(5300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.row.m8n8k32.shared.s4 {%0}, [%1], %2;"
                     : "=r"(ra[0]) : "r"(at_a), "r"(32) : "memory");
        asm volatile("wmma.load.b.sync.aligned.col.m8n8k32.shared.s4 {%0}, [%1], %2;"
                     : "=r"(rb[0]) : "r"(at_b), "r"(32) : "memory");
        asm volatile("wmma.load.c.sync.aligned.col.m8n8k32.shared.s32 {%0, %1}, [%2], %3;"
                     : "=r"(rc[0]), "=r"(rc[1]) : "r"(at_c), "r"(8) : "memory");
        asm volatile("wmma.mma.sync.aligned.row.col.m8n8k32.s32.s4.s4.s32 "
                     "{%0, %1}, {%2}, {%3}, {%4, %5};"
                     : "=r"(rd[0]), "=r"(rd[1]) : "r"(ra[0]), "r"(rb[0]), "r"(rc[0]), "r"(rc[1]));
        asm volatile("wmma.store.d.sync.aligned.col.m8n8k32.global.s32 [%2], {%0, %1}, %3;"
                     :: "r"(rd[0]), "r"(rd[1]), "l"(out + 128), "r"(8) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[1], rb[1], rc[2], rd[2];
        for (int j = i; j < 32; j += 32) a[j] = word(6000 + j);
        for (int j = i; j < 32; j += 32) b[j] = word(6700 + j);
        for (int j = i; j < 64; j += 32) c[j] = word(7300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.row.m8n8k32.shared.s4 {%0}, [%1], %2;"
                     : "=r"(ra[0]) : "r"(at_a), "r"(32) : "memory");
        asm volatile("wmma.load.b.sync.aligned.col.m8n8k32.shared.s4 {%0}, [%1], %2;"
                     : "=r"(rb[0]) : "r"(at_b), "r"(32) : "memory");
        asm volatile("wmma.load.c.sync.aligned.col.m8n8k32.shared.s32 {%0, %1}, [%2], %3;"
                     : "=r"(rc[0]), "=r"(rc[1]) : "r"(at_c), "r"(8) : "memory");
        asm volatile("wmma.mma.sync.aligned.row.col.m8n8k32.s32.s4.s4.s32.satfinite "
                     "{%0, %1}, {%2}, {%3}, {%4, %5};"
                     : "=r"(rd[0]), "=r"(rd[1]) : "r"(ra[0]), "r"(rb[0]), "r"(rc[0]), "r"(rc[1]));
        asm volatile("wmma.store.d.sync.aligned.col.m8n8k32.global.s32 [%2], {%0, %1}, %3;"
                     :: "r"(rd[0]), "r"(rd[1]), "l"(out + 192), "r"(8) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[1], rb[1], rc[2], rd[2];
        for (int j = i; j < 32; j += 32) a[j] = word(8000 + j);
        for (int j = i; j < 32; j += 32) b[j] = word(8700 + j);
        for (int j = i; j < 64; j += 32) c[j] = word(9300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.row.m8n8k32.shared.u4 {%0}, [%1], %2;"
                     : "=r"(ra[0]) : "r"(at_a), "r"(32) : "memory");
        asm volatile("wmma.load.b.sync.aligned.col.m8n8k32.shared.u4 {%0}, [%1], %2;"
                     : "=r"(rb[0]) : "r"(at_b), "r"(32) : "memory");
        asm volatile("wmma.load.c.sync.aligned.row.m8n8k32.shared.s32 {%0, %1}, [%2], %3;"
                     : "=r"(rc[0]), "=r"(rc[1]) : "r"(at_c), "r"(8) : "memory");
        asm volatile("wmma.mma.sync.aligned.row.col.m8n8k32.s32.u4.u4.s32 "
                     "{%0, %1}, {%2}, {%3}, {%4, %5};"
                     : "=r"(rd[0]), "=r"(rd[1]) : "r"(ra[0]), "r"(rb[0]), "r"(rc[0]), "r"(rc[1]));
        asm volatile("wmma.store.d.sync.aligned.row.m8n8k32.global.s32 [%2], {%0, %1}, %3;"
                     :: "r"(rd[0]), "r"(rd[1]), "l"(out + 256), "r"(8) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[1], rb[1], rc[2], rd[2];
        for (int j = i; j < 32; j += 32) a[j] = word(10000 + j);
        for (int j = i; j < 32; j += 32) b[j] = word(10700 + j);
        for (int j = i; j < 64; j += 32) c[j] = word(11300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.row.m8n8k32.shared.u4 {%0}, [%1], %2;"
                     : "=r"(ra[0]) : "r"(at_a), "r"(32) : "memory");
        asm volatile("wmma.load.b.sync.aligned.col.m8n8k32.shared.u4 {%0}, [%1], %2;"
                     : "=r"(rb[0]) : "r"(at_b), "r"(32) : "memory");
        asm volatile("wmma.load.c.sync.aligned.row.m8n8k32.shared.s32 {%0, %1}, [%2], %3;"
                     : "=r"(rc[0]), "=r"(rc[1]) : "r"(at_c), "r"(8) : "memory");
        asm volatile("wmma.mma.sync.aligned.row.col.m8n8k32.s32.u4.u4.s32.satfinite "
                     "{%0, %1}, {%2}, {%3}, {%4, %5};"
                     : "=r"(rd[0]), "=r"(rd[1]) : "r"(ra[0]), "r"(rb[0]), "r"(rc[0]), "r"(rc[1]));
        asm volatile("wmma.store.d.sync.aligned.row.m8n8k32.global.s32 [%2], {%0, %1}, %3;"
                     :: "r"(rd[0]), "r"(rd[1]), "l"(out + 320), "r"(8) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[1], rb[1], rc[2], rd[2];
        for (int j = i; j < 32; j += 32) a[j] = word(12000 + j);
        for (int j = i; j < 32; j += 32) b[j] = word(12700 + j);
        for (int j = i; j < 64; j += 32) c[j] = word(13300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.row.m8n8k32.shared.u4 {%0}, [%1], %2;"
                     : "=r"(ra[0]) : "r"(at_a), "r"(32) : "memory");
        asm volatile("wmma.load.b.sync.aligned.col.m8n8k32.shared.u4 {%0}, [%1], %2;"
                     : "=r"(rb[0]) : "r"(at_b), "r"(32) : "memory");
        asm volatile("wmma.load.c.sync.aligned.col.m8n8k32.shared.s32 {%0, %1}, [%2], %3;"
                     : "=r"(rc[0]), "=r"(rc[1]) : "r"(at_c), "r"(8) : "memory");
        asm volatile("wmma.mma.sync.aligned.row.col.m8n8k32.s32.u4.u4.s32 "
                     "{%0, %1}, {%2}, {%3}, {%4, %5};"
                     : "=r"(rd[0]), "=r"(rd[1]) : "r"(ra[0]), "r"(rb[0]), "r"(rc[0]), "r"(rc[1]));
        asm volatile("wmma.store.d.sync.aligned.col.m8n8k32.global.s32 [%2], {%0, %1}, %3;"
                     :: "r"(rd[0]), "r"(rd[1]), "l"(out + 384), "r"(8) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[1], rb[1], rc[2], rd[2];
        for (int j = i; j < 32; j += 32) a[j] = word(14000 + j);
        for (int j = i; j < 32; j += 32) b[j] = word(14700 + j);
        for (int j = i; j < 64; j += 32) c[j] = word(15300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.row.m8n8k32.shared.u4 {%0}, [%1], %2;"
                     : "=r"(ra[0]) : "r"(at_a), "r"(32) : "memory");
        asm volatile("wmma.load.b.sync.aligned.col.m8n8k32.shared.u4 {%0}, [%1], %2;"
                     : "=r"(rb[0]) : "r"(at_b), "r"(32) : "memory");
        asm volatile("wmma.load.c.sync.aligned.col.m8n8k32.shared.s32 {%0, %1}, [%2], %3;"
                     : "=r"(rc[0]), "=r"(rc[1]) : "r"(at_c), "r"(8) : "memory");
        asm volatile("wmma.mma.sync.aligned.row.col.m8n8k32.s32.u4.u4.s32.satfinite "
                     "{%0, %1}, {%2}, {%3}, {%4, %5};"
                     : "=r"(rd[0]), "=r"(rd[1]) : "r"(ra[0]), "r"(rb[0]), "r"(rc[0]), "r"(rc[1]));
        asm volatile("wmma.store.d.sync.aligned.col.m8n8k32.global.s32 [%2], {%0, %1}, %3;"
                     :: "r"(rd[0]), "r"(rd[1]), "l"(out + 448), "r"(8) : "memory");
        __syncwarp();
    }
}
