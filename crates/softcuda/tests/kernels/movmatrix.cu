// movmatrix: a matrix that is transposed, and transposed again.
// launch: movmatrix grid 1 block 64
// arg: out u32 256

__device__ unsigned noise(unsigned i) {
    i = (i + 1) * 2654435761u;
    i = (i ^ i >> 15) * 2246822519u;
    return i ^ i >> 13;
}

extern "C" __global__ void movmatrix(unsigned *out) {
    unsigned i = threadIdx.x, x = i * 2 | (i * 2 + 1) << 16, y = noise(i), d;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(d) : "r"(x));
    out[i] = d;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(d) : "r"(d));
    out[64 + i] = d;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(d) : "r"(y));
    out[128 + i] = d;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(y));
    out[192 + i] = y ^ d << 1;
}
