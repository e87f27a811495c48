// Two arrays are parts of one allocation, and both are freed. The second is an address inside the block.
// On a GPU the second call returns cudaErrorInvalidValue, which nobody looks at.
// Origin: allocations that were merged into one.
// kind: interior-free
#include "corpus.h"

__global__ void fill(int *first, int *second) {
    int i = threadIdx.x;
    first[i] = i;
    second[i] = THREADS + i;
}

int main() {
    int *first = NULL;
    CHECK(cudaMalloc(&first, 2 * THREADS * sizeof(int))); // allocated
    int *second = first + THREADS;
    fill<<<1, THREADS>>>(first, second);
    bool is_right = is_linear(read_back(first, 2 * THREADS), 1, 0);
#ifndef FIXED
    CHECK(cudaFree(second)); // access
#endif
    CHECK(cudaFree(first));
    return finish(is_right);
}
