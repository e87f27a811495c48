// One thread computes a value for its block in shared memory, and the others read it without a barrier.
// On a GPU the other warps may read the value of the block that ran there before.
// Origin: offsets that one thread reserves for its block.
// kind: shared-race
#include "corpus.h"

__global__ void offset_by_block(const int *offsets, int *out) {
    __shared__ int offset;
    if (threadIdx.x == 0) offset = 0;
    __syncthreads();
    if (threadIdx.x == 0) offset = offsets[blockIdx.x] * THREADS; // other
#ifdef FIXED
    __syncthreads();
#endif
    out[blockIdx.x * blockDim.x + threadIdx.x] = offset + threadIdx.x; // access
}

int main() {
    int *offsets = new_counted(BLOCKS), *out = new_zeroed();
    offset_by_block<<<BLOCKS, THREADS>>>(offsets, out);
    bool is_right = is_linear(read_back(out), 1, 0);
    CHECK(cudaFree(offsets));
    CHECK(cudaFree(out));
    return finish(is_right);
}
