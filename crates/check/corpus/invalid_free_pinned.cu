// Page-locked memory is freed with cudaFree, which is for device memory.
// On a GPU the call returns cudaErrorInvalidValue. Where that is ignored, the memory stays locked until the program ends.
// Origin: one clean-up function for all buffers (umf#1161 has the same with pools).
// kind: invalid-free
#include "corpus.h"

int main() {
    int *staging = NULL, *data = new_zeroed();
    CHECK(cudaMallocHost(&staging, BYTES)); // allocated
    for (int i = 0; i < N; i++) staging[i] = i;
    CHECK(cudaMemcpy(data, staging, BYTES, cudaMemcpyHostToDevice));
    bool is_right = is_linear(read_back(data), 1, 0);
#ifndef FIXED
    CHECK(cudaFree(staging)); // access
#endif
    CHECK(cudaFreeHost(staging));
    CHECK(cudaFree(data));
    return finish(is_right);
}
