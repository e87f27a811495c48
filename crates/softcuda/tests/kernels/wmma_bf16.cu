// wmma of bf16 in its three shapes; all sums are exact.
// launch: wmma_bf16 grid 1 block 32
// arg: out u32 3072

__device__ unsigned noise(unsigned i) {
    i = (i + 1) * 2654435761u;
    i = (i ^ i >> 15) * 2246822519u;
    return i ^ i >> 13;
}

__device__ unsigned bf16(unsigned i) {
    const unsigned short numbers[] = {0, 0x3f80, 0xbf80, 0x4000, 0xc000, 0x3f00, 0xbf00, 0x4040};
    return numbers[noise(i) & 7] | numbers[noise(i) >> 3 & 7] << 16;
}

__device__ unsigned f32(unsigned i) {
    return __float_as_uint((int)(noise(i) & 63) - 32);
}

extern "C" __global__ void wmma_bf16(unsigned *out) {
    __shared__ __align__(32) unsigned a[256], b[256], c[256];
    unsigned at_a = (unsigned)__cvta_generic_to_shared(a), at_b = (unsigned)__cvta_generic_to_shared(b);
    unsigned at_c = (unsigned)__cvta_generic_to_shared(c), i = threadIdx.x;
    {
        unsigned ra[4], rb[4], rc[8], rd[8];
        for (int j = i; j < 128; j += 32) a[j] = bf16(0 + j);
        for (int j = i; j < 128; j += 32) b[j] = bf16(700 + j);
        for (int j = i; j < 256; j += 32) c[j] = f32(1300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.row.m16n16k16.shared.bf16 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3]) : "r"(at_a), "r"(16) : "memory");
        asm volatile("wmma.load.b.sync.aligned.row.m16n16k16.shared.bf16 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(rb[0]), "=r"(rb[1]), "=r"(rb[2]), "=r"(rb[3]) : "r"(at_b), "r"(16) : "memory");
        asm volatile("wmma.load.c.sync.aligned.row.m16n16k16.shared.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]), "=r"(rc[4]), "=r"(rc[5]), "=r"(rc[6]), "=r"(rc[7]) : "r"(at_c), "r"(16) : "memory");
        asm volatile("wmma.mma.sync.aligned.row.row.m16n16k16.f32.bf16.bf16.f32 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, {%12, %13, %14, %15}, {%16, %17, %18, %19, %20, %21, %22, %23};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]), "=r"(rd[4]), "=r"(rd[5]), "=r"(rd[6]), "=r"(rd[7]) : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]), "r"(rb[2]), "r"(rb[3]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]), "r"(rc[4]), "r"(rc[5]), "r"(rc[6]), "r"(rc[7]));
        asm volatile("wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%8], {%0, %1, %2, %3, %4, %5, %6, %7}, %9;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "r"(rd[4]), "r"(rd[5]), "r"(rd[6]), "r"(rd[7]), "l"(out + 0), "r"(16) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[4], rb[4], rc[8], rd[8];
        for (int j = i; j < 128; j += 32) a[j] = bf16(2000 + j);
        for (int j = i; j < 128; j += 32) b[j] = bf16(2700 + j);
        for (int j = i; j < 256; j += 32) c[j] = f32(3300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.row.m16n16k16.shared.bf16 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3]) : "r"(at_a), "r"(16) : "memory");
        asm volatile("wmma.load.b.sync.aligned.col.m16n16k16.shared.bf16 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(rb[0]), "=r"(rb[1]), "=r"(rb[2]), "=r"(rb[3]) : "r"(at_b), "r"(16) : "memory");
        asm volatile("wmma.load.c.sync.aligned.row.m16n16k16.shared.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]), "=r"(rc[4]), "=r"(rc[5]), "=r"(rc[6]), "=r"(rc[7]) : "r"(at_c), "r"(16) : "memory");
        asm volatile("wmma.mma.sync.aligned.row.col.m16n16k16.f32.bf16.bf16.f32 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, {%12, %13, %14, %15}, {%16, %17, %18, %19, %20, %21, %22, %23};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]), "=r"(rd[4]), "=r"(rd[5]), "=r"(rd[6]), "=r"(rd[7]) : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]), "r"(rb[2]), "r"(rb[3]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]), "r"(rc[4]), "r"(rc[5]), "r"(rc[6]), "r"(rc[7]));
        asm volatile("wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%8], {%0, %1, %2, %3, %4, %5, %6, %7}, %9;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "r"(rd[4]), "r"(rd[5]), "r"(rd[6]), "r"(rd[7]), "l"(out + 256), "r"(16) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[4], rb[4], rc[8], rd[8];
        for (int j = i; j < 128; j += 32) a[j] = bf16(4000 + j);
        for (int j = i; j < 128; j += 32) b[j] = bf16(4700 + j);
        for (int j = i; j < 256; j += 32) c[j] = f32(5300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.col.m16n16k16.shared.bf16 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3]) : "r"(at_a), "r"(16) : "memory");
        asm volatile("wmma.load.b.sync.aligned.row.m16n16k16.shared.bf16 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(rb[0]), "=r"(rb[1]), "=r"(rb[2]), "=r"(rb[3]) : "r"(at_b), "r"(16) : "memory");
        asm volatile("wmma.load.c.sync.aligned.col.m16n16k16.shared.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]), "=r"(rc[4]), "=r"(rc[5]), "=r"(rc[6]), "=r"(rc[7]) : "r"(at_c), "r"(16) : "memory");
        asm volatile("wmma.mma.sync.aligned.col.row.m16n16k16.f32.bf16.bf16.f32 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, {%12, %13, %14, %15}, {%16, %17, %18, %19, %20, %21, %22, %23};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]), "=r"(rd[4]), "=r"(rd[5]), "=r"(rd[6]), "=r"(rd[7]) : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]), "r"(rb[2]), "r"(rb[3]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]), "r"(rc[4]), "r"(rc[5]), "r"(rc[6]), "r"(rc[7]));
        asm volatile("wmma.store.d.sync.aligned.col.m16n16k16.global.f32 [%8], {%0, %1, %2, %3, %4, %5, %6, %7}, %9;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "r"(rd[4]), "r"(rd[5]), "r"(rd[6]), "r"(rd[7]), "l"(out + 512), "r"(16) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[4], rb[4], rc[8], rd[8];
        for (int j = i; j < 128; j += 32) a[j] = bf16(6000 + j);
        for (int j = i; j < 128; j += 32) b[j] = bf16(6700 + j);
        for (int j = i; j < 256; j += 32) c[j] = f32(7300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.col.m16n16k16.shared.bf16 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3]) : "r"(at_a), "r"(16) : "memory");
        asm volatile("wmma.load.b.sync.aligned.col.m16n16k16.shared.bf16 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(rb[0]), "=r"(rb[1]), "=r"(rb[2]), "=r"(rb[3]) : "r"(at_b), "r"(16) : "memory");
        asm volatile("wmma.load.c.sync.aligned.col.m16n16k16.shared.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]), "=r"(rc[4]), "=r"(rc[5]), "=r"(rc[6]), "=r"(rc[7]) : "r"(at_c), "r"(16) : "memory");
        asm volatile("wmma.mma.sync.aligned.col.col.m16n16k16.f32.bf16.bf16.f32 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, {%12, %13, %14, %15}, {%16, %17, %18, %19, %20, %21, %22, %23};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]), "=r"(rd[4]), "=r"(rd[5]), "=r"(rd[6]), "=r"(rd[7]) : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]), "r"(rb[2]), "r"(rb[3]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]), "r"(rc[4]), "r"(rc[5]), "r"(rc[6]), "r"(rc[7]));
        asm volatile("wmma.store.d.sync.aligned.col.m16n16k16.global.f32 [%8], {%0, %1, %2, %3, %4, %5, %6, %7}, %9;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "r"(rd[4]), "r"(rd[5]), "r"(rd[6]), "r"(rd[7]), "l"(out + 768), "r"(16) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[8], rb[2], rc[8], rd[8];
        for (int j = i; j < 256; j += 32) a[j] = bf16(8000 + j);
        for (int j = i; j < 64; j += 32) b[j] = bf16(8700 + j);
        for (int j = i; j < 256; j += 32) c[j] = f32(9300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.row.m32n8k16.shared.bf16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3]), "=r"(ra[4]), "=r"(ra[5]), "=r"(ra[6]), "=r"(ra[7]) : "r"(at_a), "r"(16) : "memory");
        asm volatile("wmma.load.b.sync.aligned.row.m32n8k16.shared.bf16 {%0, %1}, [%2], %3;"
                     : "=r"(rb[0]), "=r"(rb[1]) : "r"(at_b), "r"(8) : "memory");
        asm volatile("wmma.load.c.sync.aligned.row.m32n8k16.shared.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]), "=r"(rc[4]), "=r"(rc[5]), "=r"(rc[6]), "=r"(rc[7]) : "r"(at_c), "r"(8) : "memory");
        asm volatile("wmma.mma.sync.aligned.row.row.m32n8k16.f32.bf16.bf16.f32 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11, %12, %13, %14, %15}, {%16, %17}, {%18, %19, %20, %21, %22, %23, %24, %25};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]), "=r"(rd[4]), "=r"(rd[5]), "=r"(rd[6]), "=r"(rd[7]) : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(ra[4]), "r"(ra[5]), "r"(ra[6]), "r"(ra[7]), "r"(rb[0]), "r"(rb[1]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]), "r"(rc[4]), "r"(rc[5]), "r"(rc[6]), "r"(rc[7]));
        asm volatile("wmma.store.d.sync.aligned.row.m32n8k16.global.f32 [%8], {%0, %1, %2, %3, %4, %5, %6, %7}, %9;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "r"(rd[4]), "r"(rd[5]), "r"(rd[6]), "r"(rd[7]), "l"(out + 1024), "r"(8) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[8], rb[2], rc[8], rd[8];
        for (int j = i; j < 256; j += 32) a[j] = bf16(10000 + j);
        for (int j = i; j < 64; j += 32) b[j] = bf16(10700 + j);
        for (int j = i; j < 256; j += 32) c[j] = f32(11300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.row.m32n8k16.shared.bf16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3]), "=r"(ra[4]), "=r"(ra[5]), "=r"(ra[6]), "=r"(ra[7]) : "r"(at_a), "r"(16) : "memory");
        asm volatile("wmma.load.b.sync.aligned.col.m32n8k16.shared.bf16 {%0, %1}, [%2], %3;"
                     : "=r"(rb[0]), "=r"(rb[1]) : "r"(at_b), "r"(16) : "memory");
        asm volatile("wmma.load.c.sync.aligned.row.m32n8k16.shared.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]), "=r"(rc[4]), "=r"(rc[5]), "=r"(rc[6]), "=r"(rc[7]) : "r"(at_c), "r"(8) : "memory");
        asm volatile("wmma.mma.sync.aligned.row.col.m32n8k16.f32.bf16.bf16.f32 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11, %12, %13, %14, %15}, {%16, %17}, {%18, %19, %20, %21, %22, %23, %24, %25};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]), "=r"(rd[4]), "=r"(rd[5]), "=r"(rd[6]), "=r"(rd[7]) : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(ra[4]), "r"(ra[5]), "r"(ra[6]), "r"(ra[7]), "r"(rb[0]), "r"(rb[1]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]), "r"(rc[4]), "r"(rc[5]), "r"(rc[6]), "r"(rc[7]));
        asm volatile("wmma.store.d.sync.aligned.row.m32n8k16.global.f32 [%8], {%0, %1, %2, %3, %4, %5, %6, %7}, %9;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "r"(rd[4]), "r"(rd[5]), "r"(rd[6]), "r"(rd[7]), "l"(out + 1280), "r"(8) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[8], rb[2], rc[8], rd[8];
        for (int j = i; j < 256; j += 32) a[j] = bf16(12000 + j);
        for (int j = i; j < 64; j += 32) b[j] = bf16(12700 + j);
        for (int j = i; j < 256; j += 32) c[j] = f32(13300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.col.m32n8k16.shared.bf16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3]), "=r"(ra[4]), "=r"(ra[5]), "=r"(ra[6]), "=r"(ra[7]) : "r"(at_a), "r"(32) : "memory");
        asm volatile("wmma.load.b.sync.aligned.row.m32n8k16.shared.bf16 {%0, %1}, [%2], %3;"
                     : "=r"(rb[0]), "=r"(rb[1]) : "r"(at_b), "r"(8) : "memory");
        asm volatile("wmma.load.c.sync.aligned.col.m32n8k16.shared.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]), "=r"(rc[4]), "=r"(rc[5]), "=r"(rc[6]), "=r"(rc[7]) : "r"(at_c), "r"(32) : "memory");
        asm volatile("wmma.mma.sync.aligned.col.row.m32n8k16.f32.bf16.bf16.f32 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11, %12, %13, %14, %15}, {%16, %17}, {%18, %19, %20, %21, %22, %23, %24, %25};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]), "=r"(rd[4]), "=r"(rd[5]), "=r"(rd[6]), "=r"(rd[7]) : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(ra[4]), "r"(ra[5]), "r"(ra[6]), "r"(ra[7]), "r"(rb[0]), "r"(rb[1]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]), "r"(rc[4]), "r"(rc[5]), "r"(rc[6]), "r"(rc[7]));
        asm volatile("wmma.store.d.sync.aligned.col.m32n8k16.global.f32 [%8], {%0, %1, %2, %3, %4, %5, %6, %7}, %9;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "r"(rd[4]), "r"(rd[5]), "r"(rd[6]), "r"(rd[7]), "l"(out + 1536), "r"(32) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[8], rb[2], rc[8], rd[8];
        for (int j = i; j < 256; j += 32) a[j] = bf16(14000 + j);
        for (int j = i; j < 64; j += 32) b[j] = bf16(14700 + j);
        for (int j = i; j < 256; j += 32) c[j] = f32(15300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.col.m32n8k16.shared.bf16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3]), "=r"(ra[4]), "=r"(ra[5]), "=r"(ra[6]), "=r"(ra[7]) : "r"(at_a), "r"(32) : "memory");
        asm volatile("wmma.load.b.sync.aligned.col.m32n8k16.shared.bf16 {%0, %1}, [%2], %3;"
                     : "=r"(rb[0]), "=r"(rb[1]) : "r"(at_b), "r"(16) : "memory");
        asm volatile("wmma.load.c.sync.aligned.col.m32n8k16.shared.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]), "=r"(rc[4]), "=r"(rc[5]), "=r"(rc[6]), "=r"(rc[7]) : "r"(at_c), "r"(32) : "memory");
        asm volatile("wmma.mma.sync.aligned.col.col.m32n8k16.f32.bf16.bf16.f32 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11, %12, %13, %14, %15}, {%16, %17}, {%18, %19, %20, %21, %22, %23, %24, %25};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]), "=r"(rd[4]), "=r"(rd[5]), "=r"(rd[6]), "=r"(rd[7]) : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(ra[4]), "r"(ra[5]), "r"(ra[6]), "r"(ra[7]), "r"(rb[0]), "r"(rb[1]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]), "r"(rc[4]), "r"(rc[5]), "r"(rc[6]), "r"(rc[7]));
        asm volatile("wmma.store.d.sync.aligned.col.m32n8k16.global.f32 [%8], {%0, %1, %2, %3, %4, %5, %6, %7}, %9;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "r"(rd[4]), "r"(rd[5]), "r"(rd[6]), "r"(rd[7]), "l"(out + 1792), "r"(32) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[2], rb[8], rc[8], rd[8];
        for (int j = i; j < 64; j += 32) a[j] = bf16(16000 + j);
        for (int j = i; j < 256; j += 32) b[j] = bf16(16700 + j);
        for (int j = i; j < 256; j += 32) c[j] = f32(17300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.row.m8n32k16.shared.bf16 {%0, %1}, [%2], %3;"
                     : "=r"(ra[0]), "=r"(ra[1]) : "r"(at_a), "r"(16) : "memory");
        asm volatile("wmma.load.b.sync.aligned.row.m8n32k16.shared.bf16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rb[0]), "=r"(rb[1]), "=r"(rb[2]), "=r"(rb[3]), "=r"(rb[4]), "=r"(rb[5]), "=r"(rb[6]), "=r"(rb[7]) : "r"(at_b), "r"(32) : "memory");
        asm volatile("wmma.load.c.sync.aligned.row.m8n32k16.shared.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]), "=r"(rc[4]), "=r"(rc[5]), "=r"(rc[6]), "=r"(rc[7]) : "r"(at_c), "r"(32) : "memory");
        asm volatile("wmma.mma.sync.aligned.row.row.m8n32k16.f32.bf16.bf16.f32 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13, %14, %15, %16, %17}, {%18, %19, %20, %21, %22, %23, %24, %25};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]), "=r"(rd[4]), "=r"(rd[5]), "=r"(rd[6]), "=r"(rd[7]) : "r"(ra[0]), "r"(ra[1]), "r"(rb[0]), "r"(rb[1]), "r"(rb[2]), "r"(rb[3]), "r"(rb[4]), "r"(rb[5]), "r"(rb[6]), "r"(rb[7]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]), "r"(rc[4]), "r"(rc[5]), "r"(rc[6]), "r"(rc[7]));
        asm volatile("wmma.store.d.sync.aligned.row.m8n32k16.global.f32 [%8], {%0, %1, %2, %3, %4, %5, %6, %7}, %9;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "r"(rd[4]), "r"(rd[5]), "r"(rd[6]), "r"(rd[7]), "l"(out + 2048), "r"(32) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[2], rb[8], rc[8], rd[8];
        for (int j = i; j < 64; j += 32) a[j] = bf16(18000 + j);
        for (int j = i; j < 256; j += 32) b[j] = bf16(18700 + j);
        for (int j = i; j < 256; j += 32) c[j] = f32(19300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.row.m8n32k16.shared.bf16 {%0, %1}, [%2], %3;"
                     : "=r"(ra[0]), "=r"(ra[1]) : "r"(at_a), "r"(16) : "memory");
        asm volatile("wmma.load.b.sync.aligned.col.m8n32k16.shared.bf16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rb[0]), "=r"(rb[1]), "=r"(rb[2]), "=r"(rb[3]), "=r"(rb[4]), "=r"(rb[5]), "=r"(rb[6]), "=r"(rb[7]) : "r"(at_b), "r"(16) : "memory");
        asm volatile("wmma.load.c.sync.aligned.row.m8n32k16.shared.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]), "=r"(rc[4]), "=r"(rc[5]), "=r"(rc[6]), "=r"(rc[7]) : "r"(at_c), "r"(32) : "memory");
        asm volatile("wmma.mma.sync.aligned.row.col.m8n32k16.f32.bf16.bf16.f32 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13, %14, %15, %16, %17}, {%18, %19, %20, %21, %22, %23, %24, %25};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]), "=r"(rd[4]), "=r"(rd[5]), "=r"(rd[6]), "=r"(rd[7]) : "r"(ra[0]), "r"(ra[1]), "r"(rb[0]), "r"(rb[1]), "r"(rb[2]), "r"(rb[3]), "r"(rb[4]), "r"(rb[5]), "r"(rb[6]), "r"(rb[7]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]), "r"(rc[4]), "r"(rc[5]), "r"(rc[6]), "r"(rc[7]));
        asm volatile("wmma.store.d.sync.aligned.row.m8n32k16.global.f32 [%8], {%0, %1, %2, %3, %4, %5, %6, %7}, %9;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "r"(rd[4]), "r"(rd[5]), "r"(rd[6]), "r"(rd[7]), "l"(out + 2304), "r"(32) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[2], rb[8], rc[8], rd[8];
        for (int j = i; j < 64; j += 32) a[j] = bf16(20000 + j);
        for (int j = i; j < 256; j += 32) b[j] = bf16(20700 + j);
        for (int j = i; j < 256; j += 32) c[j] = f32(21300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.col.m8n32k16.shared.bf16 {%0, %1}, [%2], %3;"
                     : "=r"(ra[0]), "=r"(ra[1]) : "r"(at_a), "r"(8) : "memory");
        asm volatile("wmma.load.b.sync.aligned.row.m8n32k16.shared.bf16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rb[0]), "=r"(rb[1]), "=r"(rb[2]), "=r"(rb[3]), "=r"(rb[4]), "=r"(rb[5]), "=r"(rb[6]), "=r"(rb[7]) : "r"(at_b), "r"(32) : "memory");
        asm volatile("wmma.load.c.sync.aligned.col.m8n32k16.shared.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]), "=r"(rc[4]), "=r"(rc[5]), "=r"(rc[6]), "=r"(rc[7]) : "r"(at_c), "r"(8) : "memory");
        asm volatile("wmma.mma.sync.aligned.col.row.m8n32k16.f32.bf16.bf16.f32 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13, %14, %15, %16, %17}, {%18, %19, %20, %21, %22, %23, %24, %25};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]), "=r"(rd[4]), "=r"(rd[5]), "=r"(rd[6]), "=r"(rd[7]) : "r"(ra[0]), "r"(ra[1]), "r"(rb[0]), "r"(rb[1]), "r"(rb[2]), "r"(rb[3]), "r"(rb[4]), "r"(rb[5]), "r"(rb[6]), "r"(rb[7]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]), "r"(rc[4]), "r"(rc[5]), "r"(rc[6]), "r"(rc[7]));
        asm volatile("wmma.store.d.sync.aligned.col.m8n32k16.global.f32 [%8], {%0, %1, %2, %3, %4, %5, %6, %7}, %9;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "r"(rd[4]), "r"(rd[5]), "r"(rd[6]), "r"(rd[7]), "l"(out + 2560), "r"(8) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[2], rb[8], rc[8], rd[8];
        for (int j = i; j < 64; j += 32) a[j] = bf16(22000 + j);
        for (int j = i; j < 256; j += 32) b[j] = bf16(22700 + j);
        for (int j = i; j < 256; j += 32) c[j] = f32(23300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.col.m8n32k16.shared.bf16 {%0, %1}, [%2], %3;"
                     : "=r"(ra[0]), "=r"(ra[1]) : "r"(at_a), "r"(8) : "memory");
        asm volatile("wmma.load.b.sync.aligned.col.m8n32k16.shared.bf16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rb[0]), "=r"(rb[1]), "=r"(rb[2]), "=r"(rb[3]), "=r"(rb[4]), "=r"(rb[5]), "=r"(rb[6]), "=r"(rb[7]) : "r"(at_b), "r"(16) : "memory");
        asm volatile("wmma.load.c.sync.aligned.col.m8n32k16.shared.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]), "=r"(rc[4]), "=r"(rc[5]), "=r"(rc[6]), "=r"(rc[7]) : "r"(at_c), "r"(8) : "memory");
        asm volatile("wmma.mma.sync.aligned.col.col.m8n32k16.f32.bf16.bf16.f32 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13, %14, %15, %16, %17}, {%18, %19, %20, %21, %22, %23, %24, %25};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]), "=r"(rd[4]), "=r"(rd[5]), "=r"(rd[6]), "=r"(rd[7]) : "r"(ra[0]), "r"(ra[1]), "r"(rb[0]), "r"(rb[1]), "r"(rb[2]), "r"(rb[3]), "r"(rb[4]), "r"(rb[5]), "r"(rb[6]), "r"(rb[7]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]), "r"(rc[4]), "r"(rc[5]), "r"(rc[6]), "r"(rc[7]));
        asm volatile("wmma.store.d.sync.aligned.col.m8n32k16.global.f32 [%8], {%0, %1, %2, %3, %4, %5, %6, %7}, %9;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "r"(rd[4]), "r"(rd[5]), "r"(rd[6]), "r"(rd[7]), "l"(out + 2816), "r"(8) : "memory");
        __syncwarp();
    }
}
