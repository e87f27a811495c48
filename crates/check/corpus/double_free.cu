// The memory is freed when the work is done, and again by the clean-up at the end.
// On a GPU the second call returns an error that nobody looks at, or frees a new block that was given the same address.
// Origin: charm#3639, llama.cpp#2005.
// kind: double-free
#include "corpus.h"

__global__ void fill(int *out) {
    out[blockIdx.x * blockDim.x + threadIdx.x] = 1;
}

int main() {
    int *out = NULL;
    CHECK(cudaMalloc(&out, BYTES)); // allocated
    fill<<<BLOCKS, THREADS>>>(out);
    bool is_right = is_linear(read_back(out), 0, 1);
    CHECK(cudaFree(out)); // freed
#ifndef FIXED
    CHECK(cudaFree(out)); // access
#endif
    return finish(is_right);
}
