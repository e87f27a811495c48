// ldmatrix that transposes one, two and four matrices.
// launch: ldmatrix_trans grid 1 block 32
// arg: out u32 320

__device__ unsigned noise(unsigned i) {
    i = (i + 1) * 2654435761u;
    i = (i ^ i >> 15) * 2246822519u;
    return i ^ i >> 13;
}

extern "C" __global__ void ldmatrix_trans(unsigned *out) {
    __shared__ __align__(16) unsigned short words[4 * 64 + 32];
    unsigned i = threadIdx.x, a, b, c, d;
    for (unsigned j = i; j < 288; j += 32) words[j] = noise(j);
    __syncwarp();
    unsigned at = (unsigned)__cvta_generic_to_shared(words);
    // Rows follow each other; rows in another order; the same row for several lanes.
    unsigned forward = at + 16 * i, mixed = at + 16 * (i * 5 % 32), shared = at + 16 * (i / 3);
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(a) : "r"(forward) : "memory");
    out[i] = a;
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared::cta.b16 {%0}, [%1+64];" : "=r"(a) : "r"(at + 16 * (i % 8 ^ 5)) : "memory");
    out[32 + i] = a;
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "r"(mixed) : "memory");
    out[64 + i] = a;
    out[96 + i] = b;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(mixed) : "memory");
    out[128 + i] = a;
    out[160 + i] = b;
    out[192 + i] = c;
    out[224 + i] = d;
    asm volatile("{.reg .b64 g; cvta.to.shared.u64 g, %4; ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [g];}"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "l"((const char *)words + shared - at) : "memory");
    out[256 + i] = a ^ b;
    out[288 + i] = c ^ d << 1;
}
