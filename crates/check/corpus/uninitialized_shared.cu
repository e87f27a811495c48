// The last block has fewer numbers than threads. Its unused elements of shared memory are not set, but the sum includes them.
// On a GPU they hold what the last block on that multiprocessor left there.
// Origin: reductions over sizes that are not a multiple of the block.
// kind: uninitialized-read
#include "corpus.h"

__global__ void reduce(const int *in, int *total, int count) {
    __shared__ int values[THREADS];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) values[threadIdx.x] = in[i];
#ifdef FIXED
    else values[threadIdx.x] = 0;
#endif
    __syncthreads();
    if (threadIdx.x != 0) return;
    int sum = 0;
    for (int t = 0; t < THREADS; t++) sum += values[t]; // access
    atomicAdd(total, sum);
}

int main() {
    const int count = N - 20;
    int *in = new_counted(), *total = new_zeroed(1);
    reduce<<<BLOCKS, THREADS>>>(in, total, count);
    bool is_right = read_back(total, 1)[0] == count * (count - 1) / 2;
    CHECK(cudaFree(in));
    CHECK(cudaFree(total));
    return finish(is_right);
}
