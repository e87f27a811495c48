// wmma of bits.
// launch: wmma_b1 grid 1 block 32
// arg: out u32 256

__device__ unsigned noise(unsigned i) {
    i = (i + 1) * 2654435761u;
    i = (i ^ i >> 15) * 2246822519u;
    return i ^ i >> 13;
}

__device__ unsigned word(unsigned i) {
    return noise(i);
}

extern "C" __global__ void wmma_b1(unsigned *out) {
    __shared__ __align__(32) unsigned a[32], b[32], c[64];
    unsigned at_a = (unsigned)__cvta_generic_to_shared(a), at_b = (unsigned)__cvta_generic_to_shared(b);
    unsigned at_c = (unsigned)__cvta_generic_to_shared(c), i = threadIdx.x;
    {
        unsigned ra[1], rb[1], rc[2], rd[2];
        for (int j = i; j < 32; j += 32) a[j] = word(0 + j);
        for (int j = i; j < 32; j += 32) b[j] = word(700 + j);
        for (int j = i; j < 64; j += 32) c[j] = word(1300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.row.m8n8k128.shared.b1 {%0}, [%1], %2;"
                     : "=r"(ra[0]) : "r"(at_a), "r"(128) : "memory");
        asm volatile("wmma.load.b.sync.aligned.col.m8n8k128.shared.b1 {%0}, [%1], %2;"
                     : "=r"(rb[0]) : "r"(at_b), "r"(128) : "memory");
        asm volatile("wmma.load.c.sync.aligned.row.m8n8k128.shared.s32 {%0, %1}, [%2], %3;"
                     : "=r"(rc[0]), "=r"(rc[1]) : "r"(at_c), "r"(8) : "memory");
        asm volatile("wmma.mma.xor.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32 "
                     "{%0, %1}, {%2}, {%3}, {%4, %5};"
                     : "=r"(rd[0]), "=r"(rd[1]) : "r"(ra[0]), "r"(rb[0]), "r"(rc[0]), "r"(rc[1]));
        asm volatile("wmma.store.d.sync.aligned.row.m8n8k128.global.s32 [%2], {%0, %1}, %3;"
                     :: "r"(rd[0]), "r"(rd[1]), "l"(out + 0), "r"(8) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[1], rb[1], rc[2], rd[2];
        for (int j = i; j < 32; j += 32) a[j] = word(2000 + j);
        for (int j = i; j < 32; j += 32) b[j] = word(2700 + j);
        for (int j = i; j < 64; j += 32) c[j] = word(3300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.row.m8n8k128.shared.b1 {%0}, [%1], %2;"
                     : "=r"(ra[0]) : "r"(at_a), "r"(128) : "memory");
        asm volatile("wmma.load.b.sync.aligned.col.m8n8k128.shared.b1 {%0}, [%1], %2;"
                     : "=r"(rb[0]) : "r"(at_b), "r"(128) : "memory");
        asm volatile("wmma.load.c.sync.aligned.row.m8n8k128.shared.s32 {%0, %1}, [%2], %3;"
                     : "=r"(rc[0]), "=r"(rc[1]) : "r"(at_c), "r"(8) : "memory");
        asm volatile("wmma.mma.and.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32 "
                     "{%0, %1}, {%2}, {%3}, {%4, %5};"
                     : "=r"(rd[0]), "=r"(rd[1]) : "r"(ra[0]), "r"(rb[0]), "r"(rc[0]), "r"(rc[1]));
        asm volatile("wmma.store.d.sync.aligned.row.m8n8k128.global.s32 [%2], {%0, %1}, %3;"
                     :: "r"(rd[0]), "r"(rd[1]), "l"(out + 64), "r"(8) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[1], rb[1], rc[2], rd[2];
        for (int j = i; j < 32; j += 32) a[j] = word(4000 + j);
        for (int j = i; j < 32; j += 32) b[j] = word(4700 + j);
        for (int j = i; j < 64; j += 32) c[j] = word(5300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.row.m8n8k128.shared.b1 {%0}, [%1], %2;"
                     : "=r"(ra[0]) : "r"(at_a), "r"(128) : "memory");
        asm volatile("wmma.load.b.sync.aligned.col.m8n8k128.shared.b1 {%0}, [%1], %2;"
                     : "=r"(rb[0]) : "r"(at_b), "r"(128) : "memory");
        asm volatile("wmma.load.c.sync.aligned.col.m8n8k128.shared.s32 {%0, %1}, [%2], %3;"
                     : "=r"(rc[0]), "=r"(rc[1]) : "r"(at_c), "r"(8) : "memory");
        asm volatile("wmma.mma.xor.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32 "
                     "{%0, %1}, {%2}, {%3}, {%4, %5};"
                     : "=r"(rd[0]), "=r"(rd[1]) : "r"(ra[0]), "r"(rb[0]), "r"(rc[0]), "r"(rc[1]));
        asm volatile("wmma.store.d.sync.aligned.col.m8n8k128.global.s32 [%2], {%0, %1}, %3;"
                     :: "r"(rd[0]), "r"(rd[1]), "l"(out + 128), "r"(8) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[1], rb[1], rc[2], rd[2];
        for (int j = i; j < 32; j += 32) a[j] = word(6000 + j);
        for (int j = i; j < 32; j += 32) b[j] = word(6700 + j);
        for (int j = i; j < 64; j += 32) c[j] = word(7300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.row.m8n8k128.shared.b1 {%0}, [%1], %2;"
                     : "=r"(ra[0]) : "r"(at_a), "r"(128) : "memory");
        asm volatile("wmma.load.b.sync.aligned.col.m8n8k128.shared.b1 {%0}, [%1], %2;"
                     : "=r"(rb[0]) : "r"(at_b), "r"(128) : "memory");
        asm volatile("wmma.load.c.sync.aligned.col.m8n8k128.shared.s32 {%0, %1}, [%2], %3;"
                     : "=r"(rc[0]), "=r"(rc[1]) : "r"(at_c), "r"(8) : "memory");
        asm volatile("wmma.mma.and.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32 "
                     "{%0, %1}, {%2}, {%3}, {%4, %5};"
                     : "=r"(rd[0]), "=r"(rd[1]) : "r"(ra[0]), "r"(rb[0]), "r"(rc[0]), "r"(rc[1]));
        asm volatile("wmma.store.d.sync.aligned.col.m8n8k128.global.s32 [%2], {%0, %1}, %3;"
                     :: "r"(rd[0]), "r"(rd[1]), "l"(out + 192), "r"(8) : "memory");
        __syncwarp();
    }
}
