// wgmma of every type, with the first factor in registers or in shared memory, added or not, and negated.
// compile: compute_90a
// launch: wgmma_types grid 1 block 128
// arg: out f32 2048

__device__ unsigned long long descriptor(const void *at) {
    unsigned long long address = (unsigned)__cvta_generic_to_shared(at) & 0x3ffff;
    return address >> 4 | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

__device__ float from_registers(const unsigned *a, unsigned long long b, int adds) {
    float d[16];
    for (int i = 0; i < 16; i++) d[i] = i;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %21, 0; "
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, {%16, %17, %18, %19}, %20, p, 1, 1, 0; }"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds)
        : "memory");
    asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::: "memory");
    float sum = 0;
    for (int i = 0; i < 16; i++) sum += (float)d[i] * (i + 1);
    return sum;
}

__device__ float negated(unsigned long long a, unsigned long long b, int adds) {
    float d[4];
    for (int i = 0; i < 4; i++) d[i] = i;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %6, 0; "
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, p, -1, 1, 0, 0; }"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "l"(a), "l"(b), "r"(adds)
        : "memory");
    asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::: "memory");
    float sum = 0;
    for (int i = 0; i < 4; i++) sum += (float)d[i] * (i + 1);
    return sum;
}

__device__ float both_negated(const unsigned *a, unsigned long long b, int adds) {
    float d[4];
    for (int i = 0; i < 4; i++) d[i] = i;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %9, 0; "
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, p, -1, -1, 1; }"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds)
        : "memory");
    asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::: "memory");
    float sum = 0;
    for (int i = 0; i < 4; i++) sum += (float)d[i] * (i + 1);
    return sum;
}

__device__ float halves(unsigned long long a, unsigned long long b, int adds) {
    unsigned d[4];
    for (int i = 0; i < 4; i++) d[i] = i * 0x3c004000u;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %6, 0; "
        "wgmma.mma_async.sync.aligned.m64n16k16.f16.f16.f16 {%0, %1, %2, %3}, %4, %5, p, 1, 1, 0, 0; }"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "l"(a), "l"(b), "r"(adds)
        : "memory");
    asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::: "memory");
    float sum = 0;
    for (int i = 0; i < 4; i++) sum += (float)(d[i] & 0x3fff) * (i + 1);
    return sum;
}

__device__ float tf32(unsigned long long a, unsigned long long b, int adds) {
    float d[12];
    for (int i = 0; i < 12; i++) d[i] = i;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %14, 0; "
        "wgmma.mma_async.sync.aligned.m64n24k8.f32.tf32.tf32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11}, %12, %13, p, 1, 1; }"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11])
        : "l"(a), "l"(b), "r"(adds)
        : "memory");
    asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::: "memory");
    float sum = 0;
    for (int i = 0; i < 12; i++) sum += (float)d[i] * (i + 1);
    return sum;
}

__device__ float tf32_from_registers(const unsigned *a, unsigned long long b, int adds) {
    float d[4];
    for (int i = 0; i < 4; i++) d[i] = i;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %9, 0; "
        "wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, p, 1, -1; }"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds)
        : "memory");
    asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::: "memory");
    float sum = 0;
    for (int i = 0; i < 4; i++) sum += (float)d[i] * (i + 1);
    return sum;
}

__device__ float eighths(unsigned long long a, unsigned long long b, int adds) {
    float d[8];
    for (int i = 0; i < 8; i++) d[i] = i;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %10, 0; "
        "wgmma.mma_async.sync.aligned.m64n16k32.f32.e4m3.e5m2 {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, p, 1, 1; }"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
        : "l"(a), "l"(b), "r"(adds)
        : "memory");
    asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::: "memory");
    float sum = 0;
    for (int i = 0; i < 8; i++) sum += (float)d[i] * (i + 1);
    return sum;
}

__device__ float bytes_product(unsigned long long a, unsigned long long b, int adds) {
    int d[8];
    for (int i = 0; i < 8; i++) d[i] = i;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %10, 0; "
        "wgmma.mma_async.sync.aligned.m64n16k32.s32.s8.u8 {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, p; }"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]), "+r"(d[7])
        : "l"(a), "l"(b), "r"(adds)
        : "memory");
    asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::: "memory");
    float sum = 0;
    for (int i = 0; i < 8; i++) sum += (float)d[i] * (i + 1);
    return sum;
}

extern "C" __global__ void wgmma_types(float *out) {
    __shared__ __align__(1024) unsigned char bytes[32768];
    const unsigned t = threadIdx.x;
    unsigned a[4];
    float *to = out + t;
    for (int kind = 0; kind < 5; kind++) {
        // f16, bf16, tf32, 8-bit floating point, bytes
        for (unsigned i = t; i < 8192; i += 128) {
            unsigned number = i * 2654435761u >> 9;
            unsigned word = 0;
            for (unsigned part = 0; part < 4; part++) {
                unsigned digit = number >> (4 * part) & 7;
                // The numbers 0, 1, 1.5, 2, and their negations.
                const unsigned short f16[] = {0, 0x3c00, 0x3e00, 0x4000, 0x8000, 0xbc00, 0xbe00, 0xc000};
                const unsigned short bf16[] = {0, 0x3f80, 0x3fc0, 0x4000, 0x8000, 0xbf80, 0xbfc0, 0xc000};
                const unsigned char e[] = {0, 0x38, 0x3c, 0x40, 0x80, 0xb8, 0xbc, 0xc0};
                if (kind == 0 && part < 2) word |= (unsigned)f16[digit] << (16 * part);
                if (kind == 1 && part < 2) word |= (unsigned)bf16[digit] << (16 * part);
                if (kind == 2 && part == 0) word = (unsigned)bf16[digit] << 16 | 0x1fff;
                if (kind == 3) word |= (unsigned)e[digit] << (8 * part);
                if (kind == 4) word |= (number >> part & 0xff) << (8 * part);
            }
            ((unsigned *)bytes)[i] = word;
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        for (int i = 0; i < 4; i++) a[i] = ((unsigned *)bytes)[t * 4 + i];
        unsigned long long at = descriptor(bytes), b = descriptor(bytes + 16384);
        for (int adds = 0; adds < 2; adds++, to += 128) {
            switch (kind) {
            case 0:
                *to = from_registers(a, b, adds);
                to[1280] = halves(at, b, adds);
                break;
            case 1:
                *to = negated(at, b, adds);
                to[1280] = both_negated(a, b, adds);
                break;
            case 2:
                *to = tf32(at, b, adds);
                to[1280] = tf32_from_registers(a, b, adds);
                break;
            case 3:
                *to = eighths(at, b, adds);
                break;
            case 4:
                *to = bytes_product(at, b, adds);
                break;
            }
        }
        __syncthreads();
    }
}
