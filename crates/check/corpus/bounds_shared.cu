// The last thread of a block reads one element past the end of an array in shared memory.
// On a GPU nothing shows: shared memory is allocated in larger units. The value is what an earlier block left.
// Origin: a tile without room for its right edge.
// kind: out-of-bounds
#include "corpus.h"

__global__ void difference(const int *in, int *out) {
#ifdef FIXED
    __shared__ int tile[THREADS + 1];
    if (threadIdx.x == 0) tile[THREADS] = in[(blockIdx.x + 1) * blockDim.x];
#else
    __shared__ int tile[THREADS];
#endif
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = in[i];
    __syncthreads();
    out[i] = tile[threadIdx.x + 1] - tile[threadIdx.x]; // access
}

int main() {
    int *in = new_counted(N + 1), *out = new_zeroed();
    difference<<<BLOCKS, THREADS>>>(in, out);
    bool is_right = is_linear(read_back(out), 0, 1);
    CHECK(cudaFree(in));
    CHECK(cudaFree(out));
    return finish(is_right);
}
