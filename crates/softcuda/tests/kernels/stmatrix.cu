// stmatrix of one, two and four matrices.
// launch: stmatrix grid 1 block 32
// arg: out u16 1024

__device__ unsigned noise(unsigned i) {
    i = (i + 1) * 2654435761u;
    i = (i ^ i >> 15) * 2246822519u;
    return i ^ i >> 13;
}

extern "C" __global__ void stmatrix(unsigned short *out) {
    __shared__ __align__(16) unsigned short words[1024];
    unsigned i = threadIdx.x;
    for (unsigned j = i; j < 1024; j += 32) words[j] = 0xdead;
    __syncwarp();
    unsigned at = (unsigned)__cvta_generic_to_shared(words), mixed = at + 16 * (i * 7 % 32);
    unsigned a = noise(i), b = noise(100 + i), c = noise(200 + i), d = noise(300 + i);
    asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"(mixed), "r"(a) : "memory");
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared::cta.b16 [%0+512], {%1, %2};" ::"r"(mixed), "r"(b), "r"(c) : "memory");
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0+1024], {%1, %2, %3, %4};"
                 ::"r"(mixed), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
    // Every second row stays as it is.
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0+1536], {%1, %2};" ::"r"(at + 32 * (i % 16)), "r"(d), "r"(c) : "memory");
    __syncwarp();
    for (unsigned j = i; j < 1024; j += 32) out[j] = words[j];
}
