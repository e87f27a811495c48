// Page-locked memory is never freed; only the device memory is.
// On a GPU the host's memory stays locked until the process ends.
// Origin: staging buffers of uploads that return early.
// kind: leak
#include "corpus.h"

int main() {
    int *staging = NULL, *data = new_zeroed();
    CHECK(cudaHostAlloc(&staging, BYTES, cudaHostAllocDefault)); // allocated
    for (int i = 0; i < N; i++) staging[i] = i;
    CHECK(cudaMemcpy(data, staging, BYTES, cudaMemcpyHostToDevice));
    bool is_right = is_linear(read_back(data), 1, 0);
#ifdef FIXED
    CHECK(cudaFreeHost(staging));
#endif
    CHECK(cudaFree(data));
    return finish(is_right);
}
