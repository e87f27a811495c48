// A device assertion fails: the input has a number that the kernel does not expect.
// On a GPU the kernel ends with cudaErrorAssert, and the context is lost. Without error checks the result is silently missing.
// Origin: index checks of embeddings ("device-side assert triggered").
// kind: kernel-fault
#include "corpus.h"

#include <assert.h>

__global__ void look_up(const int *table, const int *indices, int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    assert(indices[i] < N); // access
    out[i] = table[indices[i]];
}

int main() {
    int *table = new_counted(), *indices = new_counted(), *out = new_zeroed();
#ifndef FIXED
    int wrong = N;
    CHECK(cudaMemcpy(indices + 7, &wrong, sizeof wrong, cudaMemcpyHostToDevice));
#endif
    look_up<<<BLOCKS, THREADS>>>(table, indices, out);
    bool is_right = is_linear(read_back(out), 1, 0);
    CHECK(cudaFree(table));
    CHECK(cudaFree(indices));
    CHECK(cudaFree(out));
    return finish(is_right);
}
