// Threads add to a counter that was allocated, and never set to zero.
// On a GPU the counter starts with what was there, zero in a fresh process.
// Origin: cudaMalloc taken for calloc.
// kind: uninitialized-read
#include "corpus.h"

__global__ void count(const int *in, int *counter) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (in[i] % 2 == 0) atomicAdd(counter, 1); // access
}

int main() {
    int *in = new_counted(), *counter = NULL;
    CHECK(cudaMalloc(&counter, sizeof(int))); // allocated
#ifdef FIXED
    CHECK(cudaMemset(counter, 0, sizeof(int)));
#endif
    count<<<BLOCKS, THREADS>>>(in, counter);
    bool is_right = read_back(counter, 1)[0] == N / 2;
    CHECK(cudaFree(in));
    CHECK(cudaFree(counter));
    return finish(is_right);
}
