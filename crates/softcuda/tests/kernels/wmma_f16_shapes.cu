// wmma of f16 in its three shapes, with sums of f16 and f32 that are added to either; all sums are exact.
// launch: wmma_f16_shapes grid 1 block 32
// arg: out u32 2304

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

extern "C" __global__ void wmma_f16_shapes(unsigned *out) {
    __shared__ __align__(32) unsigned a[256], b[256], c[256];
    unsigned at_a = (unsigned)__cvta_generic_to_shared(a), at_b = (unsigned)__cvta_generic_to_shared(b);
    unsigned at_c = (unsigned)__cvta_generic_to_shared(c), i = threadIdx.x;
    {
        unsigned ra[8], rb[8], rc[4], rd[4];
        for (int j = i; j < 128; j += 32) a[j] = f16(0 + j);
        for (int j = i; j < 128; j += 32) b[j] = f16(700 + j);
        for (int j = i; j < 128; j += 32) c[j] = f16(1300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3]), "=r"(ra[4]), "=r"(ra[5]), "=r"(ra[6]), "=r"(ra[7]) : "r"(at_a), "r"(16) : "memory");
        asm volatile("wmma.load.b.sync.aligned.col.m16n16k16.shared.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rb[0]), "=r"(rb[1]), "=r"(rb[2]), "=r"(rb[3]), "=r"(rb[4]), "=r"(rb[5]), "=r"(rb[6]), "=r"(rb[7]) : "r"(at_b), "r"(16) : "memory");
        asm volatile("wmma.load.c.sync.aligned.row.m16n16k16.shared.f16 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]) : "r"(at_c), "r"(16) : "memory");
        asm volatile("wmma.mma.sync.aligned.row.col.m16n16k16.f16.f16 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7, %8, %9, %10, %11}, {%12, %13, %14, %15, %16, %17, %18, %19}, {%20, %21, %22, %23};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]) : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(ra[4]), "r"(ra[5]), "r"(ra[6]), "r"(ra[7]), "r"(rb[0]), "r"(rb[1]), "r"(rb[2]), "r"(rb[3]), "r"(rb[4]), "r"(rb[5]), "r"(rb[6]), "r"(rb[7]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]));
        asm volatile("wmma.store.d.sync.aligned.row.m16n16k16.global.f16 [%4], {%0, %1, %2, %3}, %5;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "l"(out + 0), "r"(16) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[8], rb[8], rc[4], rd[8];
        for (int j = i; j < 128; j += 32) a[j] = f16(2000 + j);
        for (int j = i; j < 128; j += 32) b[j] = f16(2700 + j);
        for (int j = i; j < 128; j += 32) c[j] = f16(3300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3]), "=r"(ra[4]), "=r"(ra[5]), "=r"(ra[6]), "=r"(ra[7]) : "r"(at_a), "r"(16) : "memory");
        asm volatile("wmma.load.b.sync.aligned.col.m16n16k16.shared.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rb[0]), "=r"(rb[1]), "=r"(rb[2]), "=r"(rb[3]), "=r"(rb[4]), "=r"(rb[5]), "=r"(rb[6]), "=r"(rb[7]) : "r"(at_b), "r"(16) : "memory");
        asm volatile("wmma.load.c.sync.aligned.row.m16n16k16.shared.f16 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]) : "r"(at_c), "r"(16) : "memory");
        asm volatile("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f16 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11, %12, %13, %14, %15}, {%16, %17, %18, %19, %20, %21, %22, %23}, {%24, %25, %26, %27};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]), "=r"(rd[4]), "=r"(rd[5]), "=r"(rd[6]), "=r"(rd[7]) : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(ra[4]), "r"(ra[5]), "r"(ra[6]), "r"(ra[7]), "r"(rb[0]), "r"(rb[1]), "r"(rb[2]), "r"(rb[3]), "r"(rb[4]), "r"(rb[5]), "r"(rb[6]), "r"(rb[7]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]));
        asm volatile("wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%8], {%0, %1, %2, %3, %4, %5, %6, %7}, %9;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "r"(rd[4]), "r"(rd[5]), "r"(rd[6]), "r"(rd[7]), "l"(out + 128), "r"(16) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[8], rb[8], rc[8], rd[4];
        for (int j = i; j < 128; j += 32) a[j] = f16(4000 + j);
        for (int j = i; j < 128; j += 32) b[j] = f16(4700 + j);
        for (int j = i; j < 256; j += 32) c[j] = f32(5300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3]), "=r"(ra[4]), "=r"(ra[5]), "=r"(ra[6]), "=r"(ra[7]) : "r"(at_a), "r"(16) : "memory");
        asm volatile("wmma.load.b.sync.aligned.col.m16n16k16.shared.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rb[0]), "=r"(rb[1]), "=r"(rb[2]), "=r"(rb[3]), "=r"(rb[4]), "=r"(rb[5]), "=r"(rb[6]), "=r"(rb[7]) : "r"(at_b), "r"(16) : "memory");
        asm volatile("wmma.load.c.sync.aligned.row.m16n16k16.shared.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]), "=r"(rc[4]), "=r"(rc[5]), "=r"(rc[6]), "=r"(rc[7]) : "r"(at_c), "r"(16) : "memory");
        asm volatile("wmma.mma.sync.aligned.row.col.m16n16k16.f16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7, %8, %9, %10, %11}, {%12, %13, %14, %15, %16, %17, %18, %19}, {%20, %21, %22, %23, %24, %25, %26, %27};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]) : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(ra[4]), "r"(ra[5]), "r"(ra[6]), "r"(ra[7]), "r"(rb[0]), "r"(rb[1]), "r"(rb[2]), "r"(rb[3]), "r"(rb[4]), "r"(rb[5]), "r"(rb[6]), "r"(rb[7]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]), "r"(rc[4]), "r"(rc[5]), "r"(rc[6]), "r"(rc[7]));
        asm volatile("wmma.store.d.sync.aligned.row.m16n16k16.global.f16 [%4], {%0, %1, %2, %3}, %5;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "l"(out + 384), "r"(16) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[8], rb[8], rc[8], rd[8];
        for (int j = i; j < 128; j += 32) a[j] = f16(6000 + j);
        for (int j = i; j < 128; j += 32) b[j] = f16(6700 + j);
        for (int j = i; j < 256; j += 32) c[j] = f32(7300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3]), "=r"(ra[4]), "=r"(ra[5]), "=r"(ra[6]), "=r"(ra[7]) : "r"(at_a), "r"(16) : "memory");
        asm volatile("wmma.load.b.sync.aligned.col.m16n16k16.shared.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rb[0]), "=r"(rb[1]), "=r"(rb[2]), "=r"(rb[3]), "=r"(rb[4]), "=r"(rb[5]), "=r"(rb[6]), "=r"(rb[7]) : "r"(at_b), "r"(16) : "memory");
        asm volatile("wmma.load.c.sync.aligned.row.m16n16k16.shared.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]), "=r"(rc[4]), "=r"(rc[5]), "=r"(rc[6]), "=r"(rc[7]) : "r"(at_c), "r"(16) : "memory");
        asm volatile("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11, %12, %13, %14, %15}, {%16, %17, %18, %19, %20, %21, %22, %23}, {%24, %25, %26, %27, %28, %29, %30, %31};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]), "=r"(rd[4]), "=r"(rd[5]), "=r"(rd[6]), "=r"(rd[7]) : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(ra[4]), "r"(ra[5]), "r"(ra[6]), "r"(ra[7]), "r"(rb[0]), "r"(rb[1]), "r"(rb[2]), "r"(rb[3]), "r"(rb[4]), "r"(rb[5]), "r"(rb[6]), "r"(rb[7]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]), "r"(rc[4]), "r"(rc[5]), "r"(rc[6]), "r"(rc[7]));
        asm volatile("wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%8], {%0, %1, %2, %3, %4, %5, %6, %7}, %9;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "r"(rd[4]), "r"(rd[5]), "r"(rd[6]), "r"(rd[7]), "l"(out + 512), "r"(16) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[8], rb[8], rc[4], rd[4];
        for (int j = i; j < 256; j += 32) a[j] = f16(8000 + j);
        for (int j = i; j < 64; j += 32) b[j] = f16(8700 + j);
        for (int j = i; j < 128; j += 32) c[j] = f16(9300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.row.m32n8k16.shared.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3]), "=r"(ra[4]), "=r"(ra[5]), "=r"(ra[6]), "=r"(ra[7]) : "r"(at_a), "r"(16) : "memory");
        asm volatile("wmma.load.b.sync.aligned.col.m32n8k16.shared.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rb[0]), "=r"(rb[1]), "=r"(rb[2]), "=r"(rb[3]), "=r"(rb[4]), "=r"(rb[5]), "=r"(rb[6]), "=r"(rb[7]) : "r"(at_b), "r"(16) : "memory");
        asm volatile("wmma.load.c.sync.aligned.row.m32n8k16.shared.f16 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]) : "r"(at_c), "r"(8) : "memory");
        asm volatile("wmma.mma.sync.aligned.row.col.m32n8k16.f16.f16 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7, %8, %9, %10, %11}, {%12, %13, %14, %15, %16, %17, %18, %19}, {%20, %21, %22, %23};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]) : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(ra[4]), "r"(ra[5]), "r"(ra[6]), "r"(ra[7]), "r"(rb[0]), "r"(rb[1]), "r"(rb[2]), "r"(rb[3]), "r"(rb[4]), "r"(rb[5]), "r"(rb[6]), "r"(rb[7]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]));
        asm volatile("wmma.store.d.sync.aligned.row.m32n8k16.global.f16 [%4], {%0, %1, %2, %3}, %5;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "l"(out + 768), "r"(8) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[8], rb[8], rc[4], rd[8];
        for (int j = i; j < 256; j += 32) a[j] = f16(10000 + j);
        for (int j = i; j < 64; j += 32) b[j] = f16(10700 + j);
        for (int j = i; j < 128; j += 32) c[j] = f16(11300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.row.m32n8k16.shared.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3]), "=r"(ra[4]), "=r"(ra[5]), "=r"(ra[6]), "=r"(ra[7]) : "r"(at_a), "r"(16) : "memory");
        asm volatile("wmma.load.b.sync.aligned.col.m32n8k16.shared.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rb[0]), "=r"(rb[1]), "=r"(rb[2]), "=r"(rb[3]), "=r"(rb[4]), "=r"(rb[5]), "=r"(rb[6]), "=r"(rb[7]) : "r"(at_b), "r"(16) : "memory");
        asm volatile("wmma.load.c.sync.aligned.row.m32n8k16.shared.f16 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]) : "r"(at_c), "r"(8) : "memory");
        asm volatile("wmma.mma.sync.aligned.row.col.m32n8k16.f32.f16 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11, %12, %13, %14, %15}, {%16, %17, %18, %19, %20, %21, %22, %23}, {%24, %25, %26, %27};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]), "=r"(rd[4]), "=r"(rd[5]), "=r"(rd[6]), "=r"(rd[7]) : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(ra[4]), "r"(ra[5]), "r"(ra[6]), "r"(ra[7]), "r"(rb[0]), "r"(rb[1]), "r"(rb[2]), "r"(rb[3]), "r"(rb[4]), "r"(rb[5]), "r"(rb[6]), "r"(rb[7]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]));
        asm volatile("wmma.store.d.sync.aligned.row.m32n8k16.global.f32 [%8], {%0, %1, %2, %3, %4, %5, %6, %7}, %9;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "r"(rd[4]), "r"(rd[5]), "r"(rd[6]), "r"(rd[7]), "l"(out + 896), "r"(8) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[8], rb[8], rc[8], rd[4];
        for (int j = i; j < 256; j += 32) a[j] = f16(12000 + j);
        for (int j = i; j < 64; j += 32) b[j] = f16(12700 + j);
        for (int j = i; j < 256; j += 32) c[j] = f32(13300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.row.m32n8k16.shared.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3]), "=r"(ra[4]), "=r"(ra[5]), "=r"(ra[6]), "=r"(ra[7]) : "r"(at_a), "r"(16) : "memory");
        asm volatile("wmma.load.b.sync.aligned.col.m32n8k16.shared.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rb[0]), "=r"(rb[1]), "=r"(rb[2]), "=r"(rb[3]), "=r"(rb[4]), "=r"(rb[5]), "=r"(rb[6]), "=r"(rb[7]) : "r"(at_b), "r"(16) : "memory");
        asm volatile("wmma.load.c.sync.aligned.row.m32n8k16.shared.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]), "=r"(rc[4]), "=r"(rc[5]), "=r"(rc[6]), "=r"(rc[7]) : "r"(at_c), "r"(8) : "memory");
        asm volatile("wmma.mma.sync.aligned.row.col.m32n8k16.f16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7, %8, %9, %10, %11}, {%12, %13, %14, %15, %16, %17, %18, %19}, {%20, %21, %22, %23, %24, %25, %26, %27};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]) : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(ra[4]), "r"(ra[5]), "r"(ra[6]), "r"(ra[7]), "r"(rb[0]), "r"(rb[1]), "r"(rb[2]), "r"(rb[3]), "r"(rb[4]), "r"(rb[5]), "r"(rb[6]), "r"(rb[7]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]), "r"(rc[4]), "r"(rc[5]), "r"(rc[6]), "r"(rc[7]));
        asm volatile("wmma.store.d.sync.aligned.row.m32n8k16.global.f16 [%4], {%0, %1, %2, %3}, %5;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "l"(out + 1152), "r"(8) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[8], rb[8], rc[8], rd[8];
        for (int j = i; j < 256; j += 32) a[j] = f16(14000 + j);
        for (int j = i; j < 64; j += 32) b[j] = f16(14700 + j);
        for (int j = i; j < 256; j += 32) c[j] = f32(15300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.row.m32n8k16.shared.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3]), "=r"(ra[4]), "=r"(ra[5]), "=r"(ra[6]), "=r"(ra[7]) : "r"(at_a), "r"(16) : "memory");
        asm volatile("wmma.load.b.sync.aligned.col.m32n8k16.shared.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rb[0]), "=r"(rb[1]), "=r"(rb[2]), "=r"(rb[3]), "=r"(rb[4]), "=r"(rb[5]), "=r"(rb[6]), "=r"(rb[7]) : "r"(at_b), "r"(16) : "memory");
        asm volatile("wmma.load.c.sync.aligned.row.m32n8k16.shared.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]), "=r"(rc[4]), "=r"(rc[5]), "=r"(rc[6]), "=r"(rc[7]) : "r"(at_c), "r"(8) : "memory");
        asm volatile("wmma.mma.sync.aligned.row.col.m32n8k16.f32.f32 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11, %12, %13, %14, %15}, {%16, %17, %18, %19, %20, %21, %22, %23}, {%24, %25, %26, %27, %28, %29, %30, %31};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]), "=r"(rd[4]), "=r"(rd[5]), "=r"(rd[6]), "=r"(rd[7]) : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(ra[4]), "r"(ra[5]), "r"(ra[6]), "r"(ra[7]), "r"(rb[0]), "r"(rb[1]), "r"(rb[2]), "r"(rb[3]), "r"(rb[4]), "r"(rb[5]), "r"(rb[6]), "r"(rb[7]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]), "r"(rc[4]), "r"(rc[5]), "r"(rc[6]), "r"(rc[7]));
        asm volatile("wmma.store.d.sync.aligned.row.m32n8k16.global.f32 [%8], {%0, %1, %2, %3, %4, %5, %6, %7}, %9;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "r"(rd[4]), "r"(rd[5]), "r"(rd[6]), "r"(rd[7]), "l"(out + 1280), "r"(8) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[8], rb[8], rc[4], rd[4];
        for (int j = i; j < 64; j += 32) a[j] = f16(16000 + j);
        for (int j = i; j < 256; j += 32) b[j] = f16(16700 + j);
        for (int j = i; j < 128; j += 32) c[j] = f16(17300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.row.m8n32k16.shared.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3]), "=r"(ra[4]), "=r"(ra[5]), "=r"(ra[6]), "=r"(ra[7]) : "r"(at_a), "r"(16) : "memory");
        asm volatile("wmma.load.b.sync.aligned.col.m8n32k16.shared.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rb[0]), "=r"(rb[1]), "=r"(rb[2]), "=r"(rb[3]), "=r"(rb[4]), "=r"(rb[5]), "=r"(rb[6]), "=r"(rb[7]) : "r"(at_b), "r"(16) : "memory");
        asm volatile("wmma.load.c.sync.aligned.row.m8n32k16.shared.f16 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]) : "r"(at_c), "r"(32) : "memory");
        asm volatile("wmma.mma.sync.aligned.row.col.m8n32k16.f16.f16 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7, %8, %9, %10, %11}, {%12, %13, %14, %15, %16, %17, %18, %19}, {%20, %21, %22, %23};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]) : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(ra[4]), "r"(ra[5]), "r"(ra[6]), "r"(ra[7]), "r"(rb[0]), "r"(rb[1]), "r"(rb[2]), "r"(rb[3]), "r"(rb[4]), "r"(rb[5]), "r"(rb[6]), "r"(rb[7]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]));
        asm volatile("wmma.store.d.sync.aligned.row.m8n32k16.global.f16 [%4], {%0, %1, %2, %3}, %5;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "l"(out + 1536), "r"(32) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[8], rb[8], rc[4], rd[8];
        for (int j = i; j < 64; j += 32) a[j] = f16(18000 + j);
        for (int j = i; j < 256; j += 32) b[j] = f16(18700 + j);
        for (int j = i; j < 128; j += 32) c[j] = f16(19300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.row.m8n32k16.shared.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3]), "=r"(ra[4]), "=r"(ra[5]), "=r"(ra[6]), "=r"(ra[7]) : "r"(at_a), "r"(16) : "memory");
        asm volatile("wmma.load.b.sync.aligned.col.m8n32k16.shared.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rb[0]), "=r"(rb[1]), "=r"(rb[2]), "=r"(rb[3]), "=r"(rb[4]), "=r"(rb[5]), "=r"(rb[6]), "=r"(rb[7]) : "r"(at_b), "r"(16) : "memory");
        asm volatile("wmma.load.c.sync.aligned.row.m8n32k16.shared.f16 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]) : "r"(at_c), "r"(32) : "memory");
        asm volatile("wmma.mma.sync.aligned.row.col.m8n32k16.f32.f16 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11, %12, %13, %14, %15}, {%16, %17, %18, %19, %20, %21, %22, %23}, {%24, %25, %26, %27};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]), "=r"(rd[4]), "=r"(rd[5]), "=r"(rd[6]), "=r"(rd[7]) : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(ra[4]), "r"(ra[5]), "r"(ra[6]), "r"(ra[7]), "r"(rb[0]), "r"(rb[1]), "r"(rb[2]), "r"(rb[3]), "r"(rb[4]), "r"(rb[5]), "r"(rb[6]), "r"(rb[7]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]));
        asm volatile("wmma.store.d.sync.aligned.row.m8n32k16.global.f32 [%8], {%0, %1, %2, %3, %4, %5, %6, %7}, %9;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "r"(rd[4]), "r"(rd[5]), "r"(rd[6]), "r"(rd[7]), "l"(out + 1664), "r"(32) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[8], rb[8], rc[8], rd[4];
        for (int j = i; j < 64; j += 32) a[j] = f16(20000 + j);
        for (int j = i; j < 256; j += 32) b[j] = f16(20700 + j);
        for (int j = i; j < 256; j += 32) c[j] = f32(21300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.row.m8n32k16.shared.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3]), "=r"(ra[4]), "=r"(ra[5]), "=r"(ra[6]), "=r"(ra[7]) : "r"(at_a), "r"(16) : "memory");
        asm volatile("wmma.load.b.sync.aligned.col.m8n32k16.shared.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rb[0]), "=r"(rb[1]), "=r"(rb[2]), "=r"(rb[3]), "=r"(rb[4]), "=r"(rb[5]), "=r"(rb[6]), "=r"(rb[7]) : "r"(at_b), "r"(16) : "memory");
        asm volatile("wmma.load.c.sync.aligned.row.m8n32k16.shared.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]), "=r"(rc[4]), "=r"(rc[5]), "=r"(rc[6]), "=r"(rc[7]) : "r"(at_c), "r"(32) : "memory");
        asm volatile("wmma.mma.sync.aligned.row.col.m8n32k16.f16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7, %8, %9, %10, %11}, {%12, %13, %14, %15, %16, %17, %18, %19}, {%20, %21, %22, %23, %24, %25, %26, %27};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]) : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(ra[4]), "r"(ra[5]), "r"(ra[6]), "r"(ra[7]), "r"(rb[0]), "r"(rb[1]), "r"(rb[2]), "r"(rb[3]), "r"(rb[4]), "r"(rb[5]), "r"(rb[6]), "r"(rb[7]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]), "r"(rc[4]), "r"(rc[5]), "r"(rc[6]), "r"(rc[7]));
        asm volatile("wmma.store.d.sync.aligned.row.m8n32k16.global.f16 [%4], {%0, %1, %2, %3}, %5;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "l"(out + 1920), "r"(32) : "memory");
        __syncwarp();
    }
    {
        unsigned ra[8], rb[8], rc[8], rd[8];
        for (int j = i; j < 64; j += 32) a[j] = f16(22000 + j);
        for (int j = i; j < 256; j += 32) b[j] = f16(22700 + j);
        for (int j = i; j < 256; j += 32) c[j] = f32(23300 + j);
        __syncwarp();
        asm volatile("wmma.load.a.sync.aligned.row.m8n32k16.shared.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3]), "=r"(ra[4]), "=r"(ra[5]), "=r"(ra[6]), "=r"(ra[7]) : "r"(at_a), "r"(16) : "memory");
        asm volatile("wmma.load.b.sync.aligned.col.m8n32k16.shared.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rb[0]), "=r"(rb[1]), "=r"(rb[2]), "=r"(rb[3]), "=r"(rb[4]), "=r"(rb[5]), "=r"(rb[6]), "=r"(rb[7]) : "r"(at_b), "r"(16) : "memory");
        asm volatile("wmma.load.c.sync.aligned.row.m8n32k16.shared.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(rc[0]), "=r"(rc[1]), "=r"(rc[2]), "=r"(rc[3]), "=r"(rc[4]), "=r"(rc[5]), "=r"(rc[6]), "=r"(rc[7]) : "r"(at_c), "r"(32) : "memory");
        asm volatile("wmma.mma.sync.aligned.row.col.m8n32k16.f32.f32 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11, %12, %13, %14, %15}, {%16, %17, %18, %19, %20, %21, %22, %23}, {%24, %25, %26, %27, %28, %29, %30, %31};"
                     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3]), "=r"(rd[4]), "=r"(rd[5]), "=r"(rd[6]), "=r"(rd[7]) : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(ra[4]), "r"(ra[5]), "r"(ra[6]), "r"(ra[7]), "r"(rb[0]), "r"(rb[1]), "r"(rb[2]), "r"(rb[3]), "r"(rb[4]), "r"(rb[5]), "r"(rb[6]), "r"(rb[7]), "r"(rc[0]), "r"(rc[1]), "r"(rc[2]), "r"(rc[3]), "r"(rc[4]), "r"(rc[5]), "r"(rc[6]), "r"(rc[7]));
        asm volatile("wmma.store.d.sync.aligned.row.m8n32k16.global.f32 [%8], {%0, %1, %2, %3, %4, %5, %6, %7}, %9;"
                     :: "r"(rd[0]), "r"(rd[1]), "r"(rd[2]), "r"(rd[3]), "r"(rd[4]), "r"(rd[5]), "r"(rd[6]), "r"(rd[7]), "l"(out + 2048), "r"(32) : "memory");
        __syncwarp();
    }
}
