// A page-locked staging buffer is freed while a copy from it is pending.
// On a GPU cudaFreeHost usually waits, which nothing promises; with a host allocator that caches, the copy reads other numbers.
// Origin: cudf#22284.
// kind: host-memory-freed
#include "corpus.h"

int main() {
    int *data = new_zeroed(), *staging = new_pinned();
    cudaStream_t stream = new_stream();
    CHECK(cudaMemcpyAsync(data, staging, BYTES, cudaMemcpyHostToDevice, stream)); // other
#ifdef FIXED
    CHECK(cudaStreamSynchronize(stream));
#endif
    CHECK(cudaFreeHost(staging)); // access
    bool is_right = is_linear(read_back(data), 1, 0);
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(data));
    return finish(is_right);
}
