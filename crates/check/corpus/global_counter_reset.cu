// The first thread of a grid sets a counter to zero, and all threads add to it. Nothing lets the other blocks wait for the first thread.
// On a GPU the first block usually starts first, and the count is right; with many blocks it is not certain.
// Origin: a memset that was saved.
// kind: global-race
#include "corpus.h"

__global__ void count(int *counter) {
#ifndef FIXED
    if (blockIdx.x == 0 && threadIdx.x == 0) *counter = 0; // other
    __syncthreads();
#endif
    atomicAdd(counter, 1); // access
}

int main() {
    int *counter = new_zeroed(1);
    count<<<BLOCKS, THREADS>>>(counter);
    bool is_right = read_back(counter, 1)[0] == N;
    CHECK(cudaFree(counter));
    return finish(is_right);
}
