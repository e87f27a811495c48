// cudaMemset counts bytes, and was given a number of elements: three quarters of the array are never written.
// On a GPU fresh memory is often zero, and nothing shows until memory is reused.
// Origin: sizeof forgotten.
// kind: uninitialized-read
#include "corpus.h"

__global__ void add(int *sums, int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = sums[i] + i; // access
}

int main() {
    int *sums = NULL, *out = new_zeroed();
    CHECK(cudaMalloc(&sums, BYTES)); // allocated
#ifdef FIXED
    CHECK(cudaMemset(sums, 0, N * sizeof(int)));
#else
    CHECK(cudaMemset(sums, 0, N));
#endif
    add<<<BLOCKS, THREADS>>>(sums, out);
    bool is_right = is_linear(read_back(out), 1, 0);
    CHECK(cudaFree(sums));
    CHECK(cudaFree(out));
    return finish(is_right);
}
