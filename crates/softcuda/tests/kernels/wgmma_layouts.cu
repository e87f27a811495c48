// wgmma with both factors in shared memory, in every layout that a descriptor can state. The kernel does not lay out matrices: which bytes
// are which elements is what is recorded.
// compile: compute_90a
// launch: wgmma_layouts grid 1 block 128
// arg: out f32 2048

__device__ unsigned long long descriptor(const void *at, unsigned leading, unsigned stride, unsigned mode) {
    unsigned long long address = (unsigned)__cvta_generic_to_shared(at) & 0x3ffff;
    return address >> 4 | (unsigned long long)(leading >> 4) << 16 | (unsigned long long)(stride >> 4) << 32 |
           (unsigned long long)mode << 62;
}

template <int A, int B> __device__ float product(unsigned long long a, unsigned long long b) {
    float d[32] = {};
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, 1, 1, 1, %34, %35;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "l"(a), "l"(b), "n"(A), "n"(B)
        : "memory");
    asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::: "memory");
    float sum = 0;
    for (int i = 0; i < 32; i++) sum += d[i] * (i + 1);
    return sum;
}

extern "C" __global__ void wgmma_layouts(float *out) {
    __shared__ __align__(1024) unsigned short words[16384];
    for (unsigned i = threadIdx.x; i < 16384; i += 128) {
        float value = (float)(int)((i * 2654435761u >> 16) % 5) - 2;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(words[i]) : "f"(value));
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    const unsigned short *a = words, *b = words + 8192;
    // None, 128 bytes, 64 bytes, 32 bytes.
    const unsigned strides[] = {256, 1024, 512, 256}, leadings[] = {128, 2048, 1024, 512};
    const unsigned apart[] = {256, 1024, 512, 256}, together[] = {2048, 2048, 1024, 512};
    for (unsigned mode = 0; mode < 4; mode++) {
        unsigned long long a0 = descriptor(a, leadings[mode], strides[mode], mode);
        unsigned long long b0 = descriptor(b, leadings[mode], strides[mode], mode);
        unsigned long long a1 = descriptor(a, together[mode], apart[mode], mode);
        unsigned long long b1 = descriptor(b, together[mode], apart[mode], mode);
        float *to = out + mode * 512 + threadIdx.x;
        to[0] = product<0, 0>(a0, b0);
        to[128] = product<0, 1>(a0, b1);
        to[256] = product<1, 0>(a1, b0);
        to[384] = product<1, 1>(a1, b1);
    }
}
