// Objects by new and delete, shared by a block through a pointer in shared memory.
// launch: new_delete grid 2 block 32
// arg: out u32 64

extern "C" __global__ void new_delete(unsigned *out) {
    __shared__ unsigned *words;
    unsigned i = threadIdx.x;
    if (i == 0) words = new unsigned[64];
    __syncthreads();
    words[i] = i * blockIdx.x;
    words[i + 32] = i + 100;
    __syncthreads();
    out[blockIdx.x * 32 + i] = words[63 - i] + words[31 - i];
    __syncthreads();
    if (i == 0) delete[] words;
}
