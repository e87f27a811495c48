// One page-locked staging buffer for two uploads: the host fills it again while the first copy may still read it.
// On a GPU the first block gets numbers of the second one, when the stream is busy.
// Origin: one staging buffer for all uploads (cudf#22284 frees it instead).
// kind: host-race
#include "corpus.h"

int main() {
    int *staging = new_pinned(), *first = new_zeroed(), *second = new_zeroed();
    cudaStream_t stream = new_stream();
    hold(stream);
    CHECK(cudaMemcpyAsync(first, staging, BYTES, cudaMemcpyHostToDevice, stream)); // other
#ifdef FIXED
    CHECK(cudaStreamSynchronize(stream));
#endif
    for (int i = 0; i < N; i++) staging[i] = 2 * i; // access
    CHECK(cudaMemcpyAsync(second, staging, BYTES, cudaMemcpyHostToDevice, stream));
    bool is_right = is_linear(read_back(first), 1, 0) && is_linear(read_back(second), 2, 0);
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(first));
    CHECK(cudaFree(second));
    CHECK(cudaFreeHost(staging));
    return finish(is_right);
}
