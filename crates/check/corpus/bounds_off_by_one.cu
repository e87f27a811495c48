// The bound of the kernel is inclusive, so one thread writes one element past the end of the array.
// On a GPU nothing shows: the rest of the page is mapped, and belongs to nobody or to the next allocation.
// Origin: `<=`.
// kind: out-of-bounds
#include "corpus.h"

__global__ void fill(int *out, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef FIXED
    if (i < count) out[i] = i;
#else
    if (i <= count) out[i] = i; // access
#endif
}

int main() {
    int *out = NULL;
    CHECK(cudaMalloc(&out, BYTES));
    fill<<<BLOCKS + 1, THREADS>>>(out, N);
    bool is_right = is_linear(read_back(out), 1, 0);
    CHECK(cudaFree(out));
    return finish(is_right);
}
