// Memory is freed with cudaFreeAsync while a copy to the host in a side stream still reads it.
// On a GPU the copy is nearly always faster than the next user of the memory.
// Origin: torchrec#4231, pytorch#58385.
// kind: free-in-use
#include "corpus.h"

int main() {
    int *data = NULL, *result = new_pinned();
    for (int i = 0; i < N; i++) result[i] = 0;
    cudaStream_t owner = new_stream(), side = new_stream();
    cudaEvent_t copied = new_event();
    CHECK(cudaMallocAsync(&data, BYTES, owner));
    CHECK(cudaStreamSynchronize(owner));
    write_counted(data);
    hold(side);
    CHECK(cudaMemcpyAsync(result, data, BYTES, cudaMemcpyDeviceToHost, side)); // other
    CHECK(cudaEventRecord(copied, side));
#ifdef FIXED
    CHECK(cudaStreamWaitEvent(owner, copied, 0));
#endif
    CHECK(cudaFreeAsync(data, owner)); // access
    wait_for_device();
    bool is_right = is_linear(result, 1, 0);
    CHECK(cudaEventDestroy(copied));
    CHECK(cudaStreamDestroy(owner));
    CHECK(cudaStreamDestroy(side));
    CHECK(cudaFreeHost(result));
    return finish(is_right);
}
