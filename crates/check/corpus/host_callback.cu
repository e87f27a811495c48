// A host function in one stream fills a page-locked buffer, and a copy in another stream reads it without a wait.
// On a GPU the copy may run before the host function, which the driver calls in a thread of its own.
// Origin: pipelines that decode in cudaLaunchHostFunc.
// kind: host-race
#include "corpus.h"

static void decode(void *buffer) {
    int *numbers = (int *)buffer;
    for (int i = 0; i < N; i++) numbers[i] = 2 * i; // other
}

int main() {
    int *buffer = new_pinned(), *data = new_zeroed();
    cudaStream_t decoder = new_stream(), upload = new_stream();
    cudaEvent_t decoded = new_event();
    hold(decoder);
    CHECK(cudaLaunchHostFunc(decoder, decode, buffer));
    CHECK(cudaEventRecord(decoded, decoder));
#ifdef FIXED
    CHECK(cudaStreamWaitEvent(upload, decoded, 0));
#endif
    CHECK(cudaMemcpyAsync(data, buffer, BYTES, cudaMemcpyHostToDevice, upload)); // access
    bool is_right = is_linear(read_back(data), 2, 0);
    CHECK(cudaEventDestroy(decoded));
    CHECK(cudaStreamDestroy(decoder));
    CHECK(cudaStreamDestroy(upload));
    CHECK(cudaFree(data));
    CHECK(cudaFreeHost(buffer));
    return finish(is_right);
}
