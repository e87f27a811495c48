// A padded array: the inner part is copied to the device, the padding on both sides is never written, and a stencil reads it.
// On a GPU the edges of the result depend on what the memory held before.
// Origin: ghost cells without boundary condition.
// kind: uninitialized-read
#include "corpus.h"

__global__ void smooth(const int *padded, int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = padded[i] + padded[i + 1] + padded[i + 2]; // access
}

int main() {
    int *padded = NULL, *out = new_zeroed();
    CHECK(cudaMalloc(&padded, BYTES + 2 * sizeof(int))); // allocated
#ifdef FIXED
    CHECK(cudaMemset(padded, 0, BYTES + 2 * sizeof(int)));
#endif
    write_counted(padded + 1);
    smooth<<<BLOCKS, THREADS>>>(padded, out);
    Numbers sums = read_back(out);
    bool is_right = sums[0] == 1 && sums[N - 1] == 2 * N - 3;
    for (int i = 1; i < N - 1; i++) is_right = is_right && sums[i] == 3 * i;
    CHECK(cudaFree(padded));
    CHECK(cudaFree(out));
    return finish(is_right);
}
