// wmma of signed and unsigned bytes in its three shapes and every layout.
// launch: wmma_s8 grid 1 block 32
// arg: out u32 6144

__device__ unsigned noise(unsigned i) {
    i = (i + 1) * 2654435761u;
    i = (i ^ i >> 15) * 2246822519u;
    return i ^ i >> 13;
}

__device__ unsigned word(unsigned i) {
    return noise(i);
}

extern "C" __global__ void wmma_s8(unsigned *out) {
    __shared__ __align__(32) unsigned a[128], b[128], c[256];
    unsigned at_a = (unsigned)__cvta_generic_to_shared(a), at_b = (unsigned)__cvta_generic_to_shared(b);
    unsigned at_c = (unsigned)__cvta_generic_to_shared(c), i = threadIdx.x;
    {
        unsigned ra[2], rb[2], rc[8], rd[8];
        for (int j = i; j < 64; j += 32) a[j] = word(0 + j);
        for (int j = i; j < 64; j += 32) b[j] = word(700 + j);
        for (int j = i; j < 256; j += 32) c[j] = word(1300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.row.m16n16k16.shared.s8 {%0, %1}, [%2], %3;"
                     : "=r"(ra[0]), "=r"(ra[1]) : "r"(at_a), "r"(16) : "memory");
        asm volatile("wmma.load.b.sync.aligned.row.m16n16k16.shared.s8 {%0, %1}, [%2], %3;"
                     : "=r"(rb[0]), "=r"(rb[1]) : "r"(at_b), "r"(16) : "memory");
        asm volatile("wmma.load.c.sync.aligned.row.m16n16k16.shared.s32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]), "=r"(rc[4]), "=r"(rc[5]), "=r"(rc[6]), "=r"(rc[7]) : "r"(at_c), "r"(16) : "memory");
        asm volatile("wmma.mma.sync.aligned.row.row.m16n16k16.s32.s8.s8.s32 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9}, {%10, %11}, {%12, %13, %14, %15, %16, %17, %18, %19};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]), "=r"(rd[4]), "=r"(rd[5]), "=r"(rd[6]), "=r"(rd[7]) : "r"(ra[0]), "r"(ra[1]), "r"(rb[0]), "r"(rb[1]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]), "r"(rc[4]), "r"(rc[5]), "r"(rc[6]), "r"(rc[7]));
        asm volatile("wmma.store.d.sync.aligned.row.m16n16k16.global.s32 [%8], {%0, %1, %2, %3, %4, %5, %6, %7}, %9;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "r"(rd[4]), "r"(rd[5]), "r"(rd[6]), "r"(rd[7]), "l"(out + 0), "r"(16) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[2], rb[2], rc[8], rd[8];
        for (int j = i; j < 64; j += 32) a[j] = word(2000 + j);
        for (int j = i; j < 64; j += 32) b[j] = word(2700 + j);
        for (int j = i; j < 256; j += 32) c[j] = word(3300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.row.m16n16k16.shared.s8 {%0, %1}, [%2], %3;"
                     : "=r"(ra[0]), "=r"(ra[1]) : "r"(at_a), "r"(16) : "memory");
        asm volatile("wmma.load.b.sync.aligned.col.m16n16k16.shared.s8 {%0, %1}, [%2], %3;"
                     : "=r"(rb[0]), "=r"(rb[1]) : "r"(at_b), "r"(16) : "memory");
        asm volatile("wmma.load.c.sync.aligned.col.m16n16k16.shared.s32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]), "=r"(rc[4]), "=r"(rc[5]), "=r"(rc[6]), "=r"(rc[7]) : "r"(at_c), "r"(16) : "memory");
        asm volatile("wmma.mma.sync.aligned.row.col.m16n16k16.s32.s8.s8.s32 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9}, {%10, %11}, {%12, %13, %14, %15, %16, %17, %18, %19};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]), "=r"(rd[4]), "=r"(rd[5]), "=r"(rd[6]), "=r"(rd[7]) : "r"(ra[0]), "r"(ra[1]), "r"(rb[0]), "r"(rb[1]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]), "r"(rc[4]), "r"(rc[5]), "r"(rc[6]), "r"(rc[7]));
        asm volatile("wmma.store.d.sync.aligned.col.m16n16k16.global.s32 [%8], {%0, %1, %2, %3, %4, %5, %6, %7}, %9;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "r"(rd[4]), "r"(rd[5]), "r"(rd[6]), "r"(rd[7]), "l"(out + 256), "r"(16) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[2], rb[2], rc[8], rd[8];
        for (int j = i; j < 64; j += 32) a[j] = word(4000 + j);
        for (int j = i; j < 64; j += 32) b[j] = word(4700 + j);
        for (int j = i; j < 256; j += 32) c[j] = word(5300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.col.m16n16k16.shared.s8 {%0, %1}, [%2], %3;"
                     : "=r"(ra[0]), "=r"(ra[1]) : "r"(at_a), "r"(16) : "memory");
        asm volatile("wmma.load.b.sync.aligned.row.m16n16k16.shared.s8 {%0, %1}, [%2], %3;"
                     : "=r"(rb[0]), "=r"(rb[1]) : "r"(at_b), "r"(16) : "memory");
        asm volatile("wmma.load.c.sync.aligned.row.m16n16k16.shared.s32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]), "=r"(rc[4]), "=r"(rc[5]), "=r"(rc[6]), "=r"(rc[7]) : "r"(at_c), "r"(16) : "memory");
        asm volatile("wmma.mma.sync.aligned.col.row.m16n16k16.s32.s8.s8.s32 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9}, {%10, %11}, {%12, %13, %14, %15, %16, %17, %18, %19};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]), "=r"(rd[4]), "=r"(rd[5]), "=r"(rd[6]), "=r"(rd[7]) : "r"(ra[0]), "r"(ra[1]), "r"(rb[0]), "r"(rb[1]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]), "r"(rc[4]), "r"(rc[5]), "r"(rc[6]), "r"(rc[7]));
        asm volatile("wmma.store.d.sync.aligned.row.m16n16k16.global.s32 [%8], {%0, %1, %2, %3, %4, %5, %6, %7}, %9;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "r"(rd[4]), "r"(rd[5]), "r"(rd[6]), "r"(rd[7]), "l"(out + 512), "r"(16) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[2], rb[2], rc[8], rd[8];
        for (int j = i; j < 64; j += 32) a[j] = word(6000 + j);
        for (int j = i; j < 64; j += 32) b[j] = word(6700 + j);
        for (int j = i; j < 256; j += 32) c[j] = word(7300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.col.m16n16k16.shared.s8 {%0, %1}, [%2], %3;"
                     : "=r"(ra[0]), "=r"(ra[1]) : "r"(at_a), "r"(16) : "memory");
        asm volatile("wmma.load.b.sync.aligned.col.m16n16k16.shared.s8 {%0, %1}, [%2], %3;"
                     : "=r"(rb[0]), "=r"(rb[1]) : "r"(at_b), "r"(16) : "memory");
        asm volatile("wmma.load.c.sync.aligned.col.m16n16k16.shared.s32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]), "=r"(rc[4]), "=r"(rc[5]), "=r"(rc[6]), "=r"(rc[7]) : "r"(at_c), "r"(16) : "memory");
        asm volatile("wmma.mma.sync.aligned.col.col.m16n16k16.s32.s8.s8.s32 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9}, {%10, %11}, {%12, %13, %14, %15, %16, %17, %18, %19};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]), "=r"(rd[4]), "=r"(rd[5]), "=r"(rd[6]), "=r"(rd[7]) : "r"(ra[0]), "r"(ra[1]), "r"(rb[0]), "r"(rb[1]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]), "r"(rc[4]), "r"(rc[5]), "r"(rc[6]), "r"(rc[7]));
        asm volatile("wmma.store.d.sync.aligned.col.m16n16k16.global.s32 [%8], {%0, %1, %2, %3, %4, %5, %6, %7}, %9;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "r"(rd[4]), "r"(rd[5]), "r"(rd[6]), "r"(rd[7]), "l"(out + 768), "r"(16) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[2], rb[2], rc[8], rd[8];
        for (int j = i; j < 64; j += 32) a[j] = word(8000 + j);
        for (int j = i; j < 64; j += 32) b[j] = word(8700 + j);
        for (int j = i; j < 256; j += 32) c[j] = word(9300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.row.m16n16k16.shared.u8 {%0, %1}, [%2], %3;"
                     : "=r"(ra[0]), "=r"(ra[1]) : "r"(at_a), "r"(16) : "memory");
        asm volatile("wmma.load.b.sync.aligned.row.m16n16k16.shared.u8 {%0, %1}, [%2], %3;"
                     : "=r"(rb[0]), "=r"(rb[1]) : "r"(at_b), "r"(16) : "memory");
        asm volatile("wmma.load.c.sync.aligned.row.m16n16k16.shared.s32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]), "=r"(rc[4]), "=r"(rc[5]), "=r"(rc[6]), "=r"(rc[7]) : "r"(at_c), "r"(16) : "memory");
        asm volatile("wmma.mma.sync.aligned.row.row.m16n16k16.s32.u8.u8.s32 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9}, {%10, %11}, {%12, %13, %14, %15, %16, %17, %18, %19};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]), "=r"(rd[4]), "=r"(rd[5]), "=r"(rd[6]), "=r"(rd[7]) : "r"(ra[0]), "r"(ra[1]), "r"(rb[0]), "r"(rb[1]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]), "r"(rc[4]), "r"(rc[5]), "r"(rc[6]), "r"(rc[7]));
        asm volatile("wmma.store.d.sync.aligned.row.m16n16k16.global.s32 [%8], {%0, %1, %2, %3, %4, %5, %6, %7}, %9;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "r"(rd[4]), "r"(rd[5]), "r"(rd[6]), "r"(rd[7]), "l"(out + 1024), "r"(16) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[2], rb[2], rc[8], rd[8];
        for (int j = i; j < 64; j += 32) a[j] = word(10000 + j);
        for (int j = i; j < 64; j += 32) b[j] = word(10700 + j);
        for (int j = i; j < 256; j += 32) c[j] = word(11300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.row.m16n16k16.shared.u8 {%0, %1}, [%2], %3;"
                     : "=r"(ra[0]), "=r"(ra[1]) : "r"(at_a), "r"(16) : "memory");
        asm volatile("wmma.load.b.sync.aligned.col.m16n16k16.shared.u8 {%0, %1}, [%2], %3;"
                     : "=r"(rb[0]), "=r"(rb[1]) : "r"(at_b), "r"(16) : "memory");
        asm volatile("wmma.load.c.sync.aligned.col.m16n16k16.shared.s32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]), "=r"(rc[4]), "=r"(rc[5]), "=r"(rc[6]), "=r"(rc[7]) : "r"(at_c), "r"(16) : "memory");
        asm volatile("wmma.mma.sync.aligned.row.col.m16n16k16.s32.u8.u8.s32 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9}, {%10, %11}, {%12, %13, %14, %15, %16, %17, %18, %19};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]), "=r"(rd[4]), "=r"(rd[5]), "=r"(rd[6]), "=r"(rd[7]) : "r"(ra[0]), "r"(ra[1]), "r"(rb[0]), "r"(rb[1]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]), "r"(rc[4]), "r"(rc[5]), "r"(rc[6]), "r"(rc[7]));
        asm volatile("wmma.store.d.sync.aligned.col.m16n16k16.global.s32 [%8], {%0, %1, %2, %3, %4, %5, %6, %7}, %9;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "r"(rd[4]), "r"(rd[5]), "r"(rd[6]), "r"(rd[7]), "l"(out + 1280), "r"(16) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[2], rb[2], rc[8], rd[8];
        for (int j = i; j < 64; j += 32) a[j] = word(12000 + j);
        for (int j = i; j < 64; j += 32) b[j] = word(12700 + j);
        for (int j = i; j < 256; j += 32) c[j] = word(13300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.col.m16n16k16.shared.u8 {%0, %1}, [%2], %3;"
                     : "=r"(ra[0]), "=r"(ra[1]) : "r"(at_a), "r"(16) : "memory");
        asm volatile("wmma.load.b.sync.aligned.row.m16n16k16.shared.u8 {%0, %1}, [%2], %3;"
                     : "=r"(rb[0]), "=r"(rb[1]) : "r"(at_b), "r"(16) : "memory");
        asm volatile("wmma.load.c.sync.aligned.row.m16n16k16.shared.s32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]), "=r"(rc[4]), "=r"(rc[5]), "=r"(rc[6]), "=r"(rc[7]) : "r"(at_c), "r"(16) : "memory");
        asm volatile("wmma.mma.sync.aligned.col.row.m16n16k16.s32.u8.u8.s32 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9}, {%10, %11}, {%12, %13, %14, %15, %16, %17, %18, %19};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]), "=r"(rd[4]), "=r"(rd[5]), "=r"(rd[6]), "=r"(rd[7]) : "r"(ra[0]), "r"(ra[1]), "r"(rb[0]), "r"(rb[1]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]), "r"(rc[4]), "r"(rc[5]), "r"(rc[6]), "r"(rc[7]));
        asm volatile("wmma.store.d.sync.aligned.row.m16n16k16.global.s32 [%8], {%0, %1, %2, %3, %4, %5, %6, %7}, %9;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "r"(rd[4]), "r"(rd[5]), "r"(rd[6]), "r"(rd[7]), "l"(out + 1536), "r"(16) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[2], rb[2], rc[8], rd[8];
        for (int j = i; j < 64; j += 32) a[j] = word(14000 + j);
        for (int j = i; j < 64; j += 32) b[j] = word(14700 + j);
        for (int j = i; j < 256; j += 32) c[j] = word(15300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.col.m16n16k16.shared.u8 {%0, %1}, [%2], %3;"
                     : "=r"(ra[0]), "=r"(ra[1]) : "r"(at_a), "r"(16) : "memory");
        asm volatile("wmma.load.b.sync.aligned.col.m16n16k16.shared.u8 {%0, %1}, [%2], %3;"
                     : "=r"(rb[0]), "=r"(rb[1]) : "r"(at_b), "r"(16) : "memory");
        asm volatile("wmma.load.c.sync.aligned.col.m16n16k16.shared.s32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]), "=r"(rc[4]), "=r"(rc[5]), "=r"(rc[6]), "=r"(rc[7]) : "r"(at_c), "r"(16) : "memory");
        asm volatile("wmma.mma.sync.aligned.col.col.m16n16k16.s32.u8.u8.s32 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9}, {%10, %11}, {%12, %13, %14, %15, %16, %17, %18, %19};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]), "=r"(rd[4]), "=r"(rd[5]), "=r"(rd[6]), "=r"(rd[7]) : "r"(ra[0]), "r"(ra[1]), "r"(rb[0]), "r"(rb[1]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]), "r"(rc[4]), "r"(rc[5]), "r"(rc[6]), "r"(rc[7]));
        asm volatile("wmma.store.d.sync.aligned.col.m16n16k16.global.s32 [%8], {%0, %1, %2, %3, %4, %5, %6, %7}, %9;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "r"(rd[4]), "r"(rd[5]), "r"(rd[6]), "r"(rd[7]), "l"(out + 1792), "r"(16) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[4], rb[1], rc[8], rd[8];
        for (int j = i; j < 128; j += 32) a[j] = word(16000 + j);
        for (int j = i; j < 32; j += 32) b[j] = word(16700 + j);
        for (int j = i; j < 256; j += 32) c[j] = word(17300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.row.m32n8k16.shared.s8 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3]) : "r"(at_a), "r"(16) : "memory");
        asm volatile("wmma.load.b.sync.aligned.row.m32n8k16.shared.s8 {%0}, [%1], %2;"
                     : "=r"(rb[0]) : "r"(at_b), "r"(8) : "memory");
        asm volatile("wmma.load.c.sync.aligned.row.m32n8k16.shared.s32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]), "=r"(rc[4]), "=r"(rc[5]), "=r"(rc[6]), "=r"(rc[7]) : "r"(at_c), "r"(8) : "memory");
        asm volatile("wmma.mma.sync.aligned.row.row.m32n8k16.s32.s8.s8.s32 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, {%12}, {%13, %14, %15, %16, %17, %18, %19, %20};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]), "=r"(rd[4]), "=r"(rd[5]), "=r"(rd[6]), "=r"(rd[7]) : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]), "r"(rc[4]), "r"(rc[5]), "r"(rc[6]), "r"(rc[7]));
        asm volatile("wmma.store.d.sync.aligned.row.m32n8k16.global.s32 [%8], {%0, %1, %2, %3, %4, %5, %6, %7}, %9;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "r"(rd[4]), "r"(rd[5]), "r"(rd[6]), "r"(rd[7]), "l"(out + 2048), "r"(8) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[4], rb[1], rc[8], rd[8];
        for (int j = i; j < 128; j += 32) a[j] = word(18000 + j);
        for (int j = i; j < 32; j += 32) b[j] = word(18700 + j);
        for (int j = i; j < 256; j += 32) c[j] = word(19300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.row.m32n8k16.shared.s8 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3]) : "r"(at_a), "r"(16) : "memory");
        asm volatile("wmma.load.b.sync.aligned.col.m32n8k16.shared.s8 {%0}, [%1], %2;"
                     : "=r"(rb[0]) : "r"(at_b), "r"(16) : "memory");
        asm volatile("wmma.load.c.sync.aligned.col.m32n8k16.shared.s32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]), "=r"(rc[4]), "=r"(rc[5]), "=r"(rc[6]), "=r"(rc[7]) : "r"(at_c), "r"(32) : "memory");
        asm volatile("wmma.mma.sync.aligned.row.col.m32n8k16.s32.s8.s8.s32 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, {%12}, {%13, %14, %15, %16, %17, %18, %19, %20};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]), "=r"(rd[4]), "=r"(rd[5]), "=r"(rd[6]), "=r"(rd[7]) : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]), "r"(rc[4]), "r"(rc[5]), "r"(rc[6]), "r"(rc[7]));
        asm volatile("wmma.store.d.sync.aligned.col.m32n8k16.global.s32 [%8], {%0, %1, %2, %3, %4, %5, %6, %7}, %9;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "r"(rd[4]), "r"(rd[5]), "r"(rd[6]), "r"(rd[7]), "l"(out + 2304), "r"(32) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[4], rb[1], rc[8], rd[8];
        for (int j = i; j < 128; j += 32) a[j] = word(20000 + j);
        for (int j = i; j < 32; j += 32) b[j] = word(20700 + j);
        for (int j = i; j < 256; j += 32) c[j] = word(21300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.col.m32n8k16.shared.s8 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3]) : "r"(at_a), "r"(32) : "memory");
        asm volatile("wmma.load.b.sync.aligned.row.m32n8k16.shared.s8 {%0}, [%1], %2;"
                     : "=r"(rb[0]) : "r"(at_b), "r"(8) : "memory");
        asm volatile("wmma.load.c.sync.aligned.row.m32n8k16.shared.s32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]), "=r"(rc[4]), "=r"(rc[5]), "=r"(rc[6]), "=r"(rc[7]) : "r"(at_c), "r"(8) : "memory");
        asm volatile("wmma.mma.sync.aligned.col.row.m32n8k16.s32.s8.s8.s32 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, {%12}, {%13, %14, %15, %16, %17, %18, %19, %20};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]), "=r"(rd[4]), "=r"(rd[5]), "=r"(rd[6]), "=r"(rd[7]) : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]), "r"(rc[4]), "r"(rc[5]), "r"(rc[6]), "r"(rc[7]));
        asm volatile("wmma.store.d.sync.aligned.row.m32n8k16.global.s32 [%8], {%0, %1, %2, %3, %4, %5, %6, %7}, %9;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "r"(rd[4]), "r"(rd[5]), "r"(rd[6]), "r"(rd[7]), "l"(out + 2560), "r"(8) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[4], rb[1], rc[8], rd[8];
        for (int j = i; j < 128; j += 32) a[j] = word(22000 + j);
        for (int j = i; j < 32; j += 32) b[j] = word(22700 + j);
        for (int j = i; j < 256; j += 32) c[j] = word(23300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.col.m32n8k16.shared.s8 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3]) : "r"(at_a), "r"(32) : "memory");
        asm volatile("wmma.load.b.sync.aligned.col.m32n8k16.shared.s8 {%0}, [%1], %2;"
                     : "=r"(rb[0]) : "r"(at_b), "r"(16) : "memory");
        asm volatile("wmma.load.c.sync.aligned.col.m32n8k16.shared.s32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]), "=r"(rc[4]), "=r"(rc[5]), "=r"(rc[6]), "=r"(rc[7]) : "r"(at_c), "r"(32) : "memory");
        asm volatile("wmma.mma.sync.aligned.col.col.m32n8k16.s32.s8.s8.s32 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, {%12}, {%13, %14, %15, %16, %17, %18, %19, %20};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]), "=r"(rd[4]), "=r"(rd[5]), "=r"(rd[6]), "=r"(rd[7]) : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]), "r"(rc[4]), "r"(rc[5]), "r"(rc[6]), "r"(rc[7]));
        asm volatile("wmma.store.d.sync.aligned.col.m32n8k16.global.s32 [%8], {%0, %1, %2, %3, %4, %5, %6, %7}, %9;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "r"(rd[4]), "r"(rd[5]), "r"(rd[6]), "r"(rd[7]), "l"(out + 2816), "r"(32) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[4], rb[1], rc[8], rd[8];
        for (int j = i; j < 128; j += 32) a[j] = word(24000 + j);
        for (int j = i; j < 32; j += 32) b[j] = word(24700 + j);
        for (int j = i; j < 256; j += 32) c[j] = word(25300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.row.m32n8k16.shared.u8 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3]) : "r"(at_a), "r"(16) : "memory");
        asm volatile("wmma.load.b.sync.aligned.row.m32n8k16.shared.u8 {%0}, [%1], %2;"
                     : "=r"(rb[0]) : "r"(at_b), "r"(8) : "memory");
        asm volatile("wmma.load.c.sync.aligned.row.m32n8k16.shared.s32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]), "=r"(rc[4]), "=r"(rc[5]), "=r"(rc[6]), "=r"(rc[7]) : "r"(at_c), "r"(8) : "memory");
        asm volatile("wmma.mma.sync.aligned.row.row.m32n8k16.s32.u8.u8.s32 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, {%12}, {%13, %14, %15, %16, %17, %18, %19, %20};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]), "=r"(rd[4]), "=r"(rd[5]), "=r"(rd[6]), "=r"(rd[7]) : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]), "r"(rc[4]), "r"(rc[5]), "r"(rc[6]), "r"(rc[7]));
        asm volatile("wmma.store.d.sync.aligned.row.m32n8k16.global.s32 [%8], {%0, %1, %2, %3, %4, %5, %6, %7}, %9;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "r"(rd[4]), "r"(rd[5]), "r"(rd[6]), "r"(rd[7]), "l"(out + 3072), "r"(8) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[4], rb[1], rc[8], rd[8];
        for (int j = i; j < 128; j += 32) a[j] = word(26000 + j);
        for (int j = i; j < 32; j += 32) b[j] = word(26700 + j);
        for (int j = i; j < 256; j += 32) c[j] = word(27300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.row.m32n8k16.shared.u8 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3]) : "r"(at_a), "r"(16) : "memory");
        asm volatile("wmma.load.b.sync.aligned.col.m32n8k16.shared.u8 {%0}, [%1], %2;"
                     : "=r"(rb[0]) : "r"(at_b), "r"(16) : "memory");
        asm volatile("wmma.load.c.sync.aligned.col.m32n8k16.shared.s32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]), "=r"(rc[4]), "=r"(rc[5]), "=r"(rc[6]), "=r"(rc[7]) : "r"(at_c), "r"(32) : "memory");
        asm volatile("wmma.mma.sync.aligned.row.col.m32n8k16.s32.u8.u8.s32 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, {%12}, {%13, %14, %15, %16, %17, %18, %19, %20};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]), "=r"(rd[4]), "=r"(rd[5]), "=r"(rd[6]), "=r"(rd[7]) : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]), "r"(rc[4]), "r"(rc[5]), "r"(rc[6]), "r"(rc[7]));
        asm volatile("wmma.store.d.sync.aligned.col.m32n8k16.global.s32 [%8], {%0, %1, %2, %3, %4, %5, %6, %7}, %9;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "r"(rd[4]), "r"(rd[5]), "r"(rd[6]), "r"(rd[7]), "l"(out + 3328), "r"(32) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[4], rb[1], rc[8], rd[8];
        for (int j = i; j < 128; j += 32) a[j] = word(28000 + j);
        for (int j = i; j < 32; j += 32) b[j] = word(28700 + j);
        for (int j = i; j < 256; j += 32) c[j] = word(29300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.col.m32n8k16.shared.u8 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3]) : "r"(at_a), "r"(32) : "memory");
        asm volatile("wmma.load.b.sync.aligned.row.m32n8k16.shared.u8 {%0}, [%1], %2;"
                     : "=r"(rb[0]) : "r"(at_b), "r"(8) : "memory");
        asm volatile("wmma.load.c.sync.aligned.row.m32n8k16.shared.s32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]), "=r"(rc[4]), "=r"(rc[5]), "=r"(rc[6]), "=r"(rc[7]) : "r"(at_c), "r"(8) : "memory");
        asm volatile("wmma.mma.sync.aligned.col.row.m32n8k16.s32.u8.u8.s32 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, {%12}, {%13, %14, %15, %16, %17, %18, %19, %20};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]), "=r"(rd[4]), "=r"(rd[5]), "=r"(rd[6]), "=r"(rd[7]) : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]), "r"(rc[4]), "r"(rc[5]), "r"(rc[6]), "r"(rc[7]));
        asm volatile("wmma.store.d.sync.aligned.row.m32n8k16.global.s32 [%8], {%0, %1, %2, %3, %4, %5, %6, %7}, %9;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "r"(rd[4]), "r"(rd[5]), "r"(rd[6]), "r"(rd[7]), "l"(out + 3584), "r"(8) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[4], rb[1], rc[8], rd[8];
        for (int j = i; j < 128; j += 32) a[j] = word(30000 + j);
        for (int j = i; j < 32; j += 32) b[j] = word(30700 + j);
        for (int j = i; j < 256; j += 32) c[j] = word(31300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.col.m32n8k16.shared.u8 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3]) : "r"(at_a), "r"(32) : "memory");
        asm volatile("wmma.load.b.sync.aligned.col.m32n8k16.shared.u8 {%0}, [%1], %2;"
                     : "=r"(rb[0]) : "r"(at_b), "r"(16) : "memory");
        asm volatile("wmma.load.c.sync.aligned.col.m32n8k16.shared.s32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]), "=r"(rc[4]), "=r"(rc[5]), "=r"(rc[6]), "=r"(rc[7]) : "r"(at_c), "r"(32) : "memory");
        asm volatile("wmma.mma.sync.aligned.col.col.m32n8k16.s32.u8.u8.s32 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, {%12}, {%13, %14, %15, %16, %17, %18, %19, %20};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]), "=r"(rd[4]), "=r"(rd[5]), "=r"(rd[6]), "=r"(rd[7]) : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]), "r"(rc[4]), "r"(rc[5]), "r"(rc[6]), "r"(rc[7]));
        asm volatile("wmma.store.d.sync.aligned.col.m32n8k16.global.s32 [%8], {%0, %1, %2, %3, %4, %5, %6, %7}, %9;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "r"(rd[4]), "r"(rd[5]), "r"(rd[6]), "r"(rd[7]), "l"(out + 3840), "r"(32) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[1], rb[4], rc[8], rd[8];
        for (int j = i; j < 32; j += 32) a[j] = word(32000 + j);
        for (int j = i; j < 128; j += 32) b[j] = word(32700 + j);
        for (int j = i; j < 256; j += 32) c[j] = word(33300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.row.m8n32k16.shared.s8 {%0}, [%1], %2;"
                     : "=r"(ra[0]) : "r"(at_a), "r"(16) : "memory");
        asm volatile("wmma.load.b.sync.aligned.row.m8n32k16.shared.s8 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(rb[0]), "=r"(rb[1]), "=r"(rb[2]), "=r"(rb[3]) : "r"(at_b), "r"(32) : "memory");
        asm volatile("wmma.load.c.sync.aligned.row.m8n32k16.shared.s32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]), "=r"(rc[4]), "=r"(rc[5]), "=r"(rc[6]), "=r"(rc[7]) : "r"(at_c), "r"(32) : "memory");
        asm volatile("wmma.mma.sync.aligned.row.row.m8n32k16.s32.s8.s8.s32 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8}, {%9, %10, %11, %12}, {%13, %14, %15, %16, %17, %18, %19, %20};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]), "=r"(rd[4]), "=r"(rd[5]), "=r"(rd[6]), "=r"(rd[7]) : "r"(ra[0]), "r"(rb[0]), "r"(rb[1]), "r"(rb[2]), "r"(rb[3]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]), "r"(rc[4]), "r"(rc[5]), "r"(rc[6]), "r"(rc[7]));
        asm volatile("wmma.store.d.sync.aligned.row.m8n32k16.global.s32 [%8], {%0, %1, %2, %3, %4, %5, %6, %7}, %9;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "r"(rd[4]), "r"(rd[5]), "r"(rd[6]), "r"(rd[7]), "l"(out + 4096), "r"(32) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[1], rb[4], rc[8], rd[8];
        for (int j = i; j < 32; j += 32) a[j] = word(34000 + j);
        for (int j = i; j < 128; j += 32) b[j] = word(34700 + j);
        for (int j = i; j < 256; j += 32) c[j] = word(35300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.row.m8n32k16.shared.s8 {%0}, [%1], %2;"
                     : "=r"(ra[0]) : "r"(at_a), "r"(16) : "memory");
        asm volatile("wmma.load.b.sync.aligned.col.m8n32k16.shared.s8 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(rb[0]), "=r"(rb[1]), "=r"(rb[2]), "=r"(rb[3]) : "r"(at_b), "r"(16) : "memory");
        asm volatile("wmma.load.c.sync.aligned.col.m8n32k16.shared.s32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]), "=r"(rc[4]), "=r"(rc[5]), "=r"(rc[6]), "=r"(rc[7]) : "r"(at_c), "r"(8) : "memory");
        asm volatile("wmma.mma.sync.aligned.row.col.m8n32k16.s32.s8.s8.s32 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8}, {%9, %10, %11, %12}, {%13, %14, %15, %16, %17, %18, %19, %20};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]), "=r"(rd[4]), "=r"(rd[5]), "=r"(rd[6]), "=r"(rd[7]) : "r"(ra[0]), "r"(rb[0]), "r"(rb[1]), "r"(rb[2]), "r"(rb[3]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]), "r"(rc[4]), "r"(rc[5]), "r"(rc[6]), "r"(rc[7]));
        asm volatile("wmma.store.d.sync.aligned.col.m8n32k16.global.s32 [%8], {%0, %1, %2, %3, %4, %5, %6, %7}, %9;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "r"(rd[4]), "r"(rd[5]), "r"(rd[6]), "r"(rd[7]), "l"(out + 4352), "r"(8) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[1], rb[4], rc[8], rd[8];
        for (int j = i; j < 32; j += 32) a[j] = word(36000 + j);
        for (int j = i; j < 128; j += 32) b[j] = word(36700 + j);
        for (int j = i; j < 256; j += 32) c[j] = word(37300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.col.m8n32k16.shared.s8 {%0}, [%1], %2;"
                     : "=r"(ra[0]) : "r"(at_a), "r"(8) : "memory");
        asm volatile("wmma.load.b.sync.aligned.row.m8n32k16.shared.s8 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(rb[0]), "=r"(rb[1]), "=r"(rb[2]), "=r"(rb[3]) : "r"(at_b), "r"(32) : "memory");
        asm volatile("wmma.load.c.sync.aligned.row.m8n32k16.shared.s32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]), "=r"(rc[4]), "=r"(rc[5]), "=r"(rc[6]), "=r"(rc[7]) : "r"(at_c), "r"(32) : "memory");
        asm volatile("wmma.mma.sync.aligned.col.row.m8n32k16.s32.s8.s8.s32 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8}, {%9, %10, %11, %12}, {%13, %14, %15, %16, %17, %18, %19, %20};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]), "=r"(rd[4]), "=r"(rd[5]), "=r"(rd[6]), "=r"(rd[7]) : "r"(ra[0]), "r"(rb[0]), "r"(rb[1]), "r"(rb[2]), "r"(rb[3]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]), "r"(rc[4]), "r"(rc[5]), "r"(rc[6]), "r"(rc[7]));
        asm volatile("wmma.store.d.sync.aligned.row.m8n32k16.global.s32 [%8], {%0, %1, %2, %3, %4, %5, %6, %7}, %9;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "r"(rd[4]), "r"(rd[5]), "r"(rd[6]), "r"(rd[7]), "l"(out + 4608), "r"(32) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[1], rb[4], rc[8], rd[8];
        for (int j = i; j < 32; j += 32) a[j] = word(38000 + j);
        for (int j = i; j < 128; j += 32) b[j] = word(38700 + j);
        for (int j = i; j < 256; j += 32) c[j] = word(39300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.col.m8n32k16.shared.s8 {%0}, [%1], %2;"
                     : "=r"(ra[0]) : "r"(at_a), "r"(8) : "memory");
        asm volatile("wmma.load.b.sync.aligned.col.m8n32k16.shared.s8 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(rb[0]), "=r"(rb[1]), "=r"(rb[2]), "=r"(rb[3]) : "r"(at_b), "r"(16) : "memory");
        asm volatile("wmma.load.c.sync.aligned.col.m8n32k16.shared.s32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]), "=r"(rc[4]), "=r"(rc[5]), "=r"(rc[6]), "=r"(rc[7]) : "r"(at_c), "r"(8) : "memory");
        asm volatile("wmma.mma.sync.aligned.col.col.m8n32k16.s32.s8.s8.s32 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8}, {%9, %10, %11, %12}, {%13, %14, %15, %16, %17, %18, %19, %20};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]), "=r"(rd[4]), "=r"(rd[5]), "=r"(rd[6]), "=r"(rd[7]) : "r"(ra[0]), "r"(rb[0]), "r"(rb[1]), "r"(rb[2]), "r"(rb[3]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]), "r"(rc[4]), "r"(rc[5]), "r"(rc[6]), "r"(rc[7]));
        asm volatile("wmma.store.d.sync.aligned.col.m8n32k16.global.s32 [%8], {%0, %1, %2, %3, %4, %5, %6, %7}, %9;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "r"(rd[4]), "r"(rd[5]), "r"(rd[6]), "r"(rd[7]), "l"(out + 4864), "r"(8) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[1], rb[4], rc[8], rd[8];
        for (int j = i; j < 32; j += 32) a[j] = word(40000 + j);
        for (int j = i; j < 128; j += 32) b[j] = word(40700 + j);
        for (int j = i; j < 256; j += 32) c[j] = word(41300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.row.m8n32k16.shared.u8 {%0}, [%1], %2;"
                     : "=r"(ra[0]) : "r"(at_a), "r"(16) : "memory");
        asm volatile("wmma.load.b.sync.aligned.row.m8n32k16.shared.u8 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(rb[0]), "=r"(rb[1]), "=r"(rb[2]), "=r"(rb[3]) : "r"(at_b), "r"(32) : "memory");
        asm volatile("wmma.load.c.sync.aligned.row.m8n32k16.shared.s32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]), "=r"(rc[4]), "=r"(rc[5]), "=r"(rc[6]), "=r"(rc[7]) : "r"(at_c), "r"(32) : "memory");
        asm volatile("wmma.mma.sync.aligned.row.row.m8n32k16.s32.u8.u8.s32 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8}, {%9, %10, %11, %12}, {%13, %14, %15, %16, %17, %18, %19, %20};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]), "=r"(rd[4]), "=r"(rd[5]), "=r"(rd[6]), "=r"(rd[7]) : "r"(ra[0]), "r"(rb[0]), "r"(rb[1]), "r"(rb[2]), "r"(rb[3]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]), "r"(rc[4]), "r"(rc[5]), "r"(rc[6]), "r"(rc[7]));
        asm volatile("wmma.store.d.sync.aligned.row.m8n32k16.global.s32 [%8], {%0, %1, %2, %3, %4, %5, %6, %7}, %9;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "r"(rd[4]), "r"(rd[5]), "r"(rd[6]), "r"(rd[7]), "l"(out + 5120), "r"(32) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[1], rb[4], rc[8], rd[8];
        for (int j = i; j < 32; j += 32) a[j] = word(42000 + j);
        for (int j = i; j < 128; j += 32) b[j] = word(42700 + j);
        for (int j = i; j < 256; j += 32) c[j] = word(43300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.row.m8n32k16.shared.u8 {%0}, [%1], %2;"
                     : "=r"(ra[0]) : "r"(at_a), "r"(16) : "memory");
        asm volatile("wmma.load.b.sync.aligned.col.m8n32k16.shared.u8 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(rb[0]), "=r"(rb[1]), "=r"(rb[2]), "=r"(rb[3]) : "r"(at_b), "r"(16) : "memory");
        asm volatile("wmma.load.c.sync.aligned.col.m8n32k16.shared.s32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]), "=r"(rc[4]), "=r"(rc[5]), "=r"(rc[6]), "=r"(rc[7]) : "r"(at_c), "r"(8) : "memory");
        asm volatile("wmma.mma.sync.aligned.row.col.m8n32k16.s32.u8.u8.s32 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8}, {%9, %10, %11, %12}, {%13, %14, %15, %16, %17, %18, %19, %20};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]), "=r"(rd[4]), "=r"(rd[5]), "=r"(rd[6]), "=r"(rd[7]) : "r"(ra[0]), "r"(rb[0]), "r"(rb[1]), "r"(rb[2]), "r"(rb[3]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]), "r"(rc[4]), "r"(rc[5]), "r"(rc[6]), "r"(rc[7]));
        asm volatile("wmma.store.d.sync.aligned.col.m8n32k16.global.s32 [%8], {%0, %1, %2, %3, %4, %5, %6, %7}, %9;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "r"(rd[4]), "r"(rd[5]), "r"(rd[6]), "r"(rd[7]), "l"(out + 5376), "r"(8) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[1], rb[4], rc[8], rd[8];
        for (int j = i; j < 32; j += 32) a[j] = word(44000 + j);
        for (int j = i; j < 128; j += 32) b[j] = word(44700 + j);
        for (int j = i; j < 256; j += 32) c[j] = word(45300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.col.m8n32k16.shared.u8 {%0}, [%1], %2;"
                     : "=r"(ra[0]) : "r"(at_a), "r"(8) : "memory");
        asm volatile("wmma.load.b.sync.aligned.row.m8n32k16.shared.u8 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(rb[0]), "=r"(rb[1]), "=r"(rb[2]), "=r"(rb[3]) : "r"(at_b), "r"(32) : "memory");
        asm volatile("wmma.load.c.sync.aligned.row.m8n32k16.shared.s32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]), "=r"(rc[4]), "=r"(rc[5]), "=r"(rc[6]), "=r"(rc[7]) : "r"(at_c), "r"(32) : "memory");
        asm volatile("wmma.mma.sync.aligned.col.row.m8n32k16.s32.u8.u8.s32 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8}, {%9, %10, %11, %12}, {%13, %14, %15, %16, %17, %18, %19, %20};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]), "=r"(rd[4]), "=r"(rd[5]), "=r"(rd[6]), "=r"(rd[7]) : "r"(ra[0]), "r"(rb[0]), "r"(rb[1]), "r"(rb[2]), "r"(rb[3]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]), "r"(rc[4]), "r"(rc[5]), "r"(rc[6]), "r"(rc[7]));
        asm volatile("wmma.store.d.sync.aligned.row.m8n32k16.global.s32 [%8], {%0, %1, %2, %3, %4, %5, %6, %7}, %9;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "r"(rd[4]), "r"(rd[5]), "r"(rd[6]), "r"(rd[7]), "l"(out + 5632), "r"(32) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[1], rb[4], rc[8], rd[8];
        for (int j = i; j < 32; j += 32) a[j] = word(46000 + j);
        for (int j = i; j < 128; j += 32) b[j] = word(46700 + j);
        for (int j = i; j < 256; j += 32) c[j] = word(47300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.col.m8n32k16.shared.u8 {%0}, [%1], %2;"
                     : "=r"(ra[0]) : "r"(at_a), "r"(8) : "memory");
        asm volatile("wmma.load.b.sync.aligned.col.m8n32k16.shared.u8 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(rb[0]), "=r"(rb[1]), "=r"(rb[2]), "=r"(rb[3]) : "r"(at_b), "r"(16) : "memory");
        asm volatile("wmma.load.c.sync.aligned.col.m8n32k16.shared.s32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]), "=r"(rc[4]), "=r"(rc[5]), "=r"(rc[6]), "=r"(rc[7]) : "r"(at_c), "r"(8) : "memory");
        asm volatile("wmma.mma.sync.aligned.col.col.m8n32k16.s32.u8.u8.s32 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8}, {%9, %10, %11, %12}, {%13, %14, %15, %16, %17, %18, %19, %20};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]), "=r"(rd[4]), "=r"(rd[5]), "=r"(rd[6]), "=r"(rd[7]) : "r"(ra[0]), "r"(rb[0]), "r"(rb[1]), "r"(rb[2]), "r"(rb[3]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]), "r"(rc[4]), "r"(rc[5]), "r"(rc[6]), "r"(rc[7]));
        asm volatile("wmma.store.d.sync.aligned.col.m8n32k16.global.s32 [%8], {%0, %1, %2, %3, %4, %5, %6, %7}, %9;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "r"(rd[4]), "r"(rd[5]), "r"(rd[6]), "r"(rd[7]), "l"(out + 5888), "r"(8) : "memory");
        __syncwarp();
    }
}
