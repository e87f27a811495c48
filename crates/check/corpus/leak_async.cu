// A stream-ordered block is not freed: its pointer is overwritten by the next allocation.
// On a GPU the pool grows by one block in each round.
// Origin: a buffer that grows; vLLM#50779 and kvcached#87 are about such growth.
// kind: leak
#include "corpus.h"

int main() {
    int *buffer = NULL;
    cudaStream_t stream = new_stream();
    CHECK(cudaMallocAsync(&buffer, BYTES / 2, stream)); // allocated
    CHECK(cudaMemsetAsync(buffer, 0, BYTES / 2, stream));
#ifdef FIXED
    CHECK(cudaFreeAsync(buffer, stream));
#endif
    CHECK(cudaMallocAsync(&buffer, BYTES, stream));
    CHECK(cudaMemsetAsync(buffer, 0, BYTES, stream));
    bool is_right = is_linear(read_back(buffer), 0, 0);
    CHECK(cudaFreeAsync(buffer, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaStreamDestroy(stream));
    return finish(is_right);
}
