// Two owners of one stream-ordered block free it, each in the same stream.
// On a GPU the second call returns an error, or frees the block of the next owner.
// Origin: two wrappers around one pointer.
// kind: double-free
#include "corpus.h"

int main() {
    int *data = NULL;
    cudaStream_t stream = new_stream();
    CHECK(cudaMallocAsync(&data, BYTES, stream)); // allocated
    CHECK(cudaMemsetAsync(data, 0, BYTES, stream));
    CHECK(cudaStreamSynchronize(stream));
    bool is_right = is_linear(read_back(data), 0, 0);
    CHECK(cudaFreeAsync(data, stream)); // freed
#ifndef FIXED
    CHECK(cudaFreeAsync(data, stream)); // access
#endif
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaStreamDestroy(stream));
    return finish(is_right);
}
