// A stencil reads the left neighbour of the first element, four bytes before the array.
// On a GPU it reads what lies there, often zero or another array's end, and nothing shows.
// Origin: a condition that covers only one edge.
// kind: out-of-bounds
#include "corpus.h"

__global__ void difference(const int *in, int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef FIXED
    if (i == 0) return;
#endif
    out[i] = in[i] - in[i - 1]; // access
}

int main() {
    int *in = NULL;
    CHECK(cudaMalloc(&in, BYTES));
    int *out = new_zeroed();
    write_counted(in);
    difference<<<BLOCKS, THREADS>>>(in, out);
    Numbers differences = read_back(out);
    bool is_right = true;
    for (int i = 1; i < N; i++) is_right = is_right && differences[i] == 1;
    CHECK(cudaFree(in));
    CHECK(cudaFree(out));
    return finish(is_right);
}
