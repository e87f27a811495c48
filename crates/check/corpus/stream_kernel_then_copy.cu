// A kernel computes in one stream, and a copy to the host in another stream does not wait for it.
// On a GPU the copy may start while the kernel runs: part of the result is old. Short kernels hide it.
// Origin: a download stream without an event.
// kind: stream-race
#include "corpus.h"

__global__ void triple(int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = i * 3; // other
}

int main() {
    int *result = new_pinned(), *out = new_zeroed();
    for (int i = 0; i < N; i++) result[i] = 0;
    cudaStream_t compute = new_stream(), download = new_stream();
    cudaEvent_t computed = new_event();
    hold(compute);
    triple<<<BLOCKS, THREADS, 0, compute>>>(out);
    CHECK(cudaEventRecord(computed, compute));
#ifdef FIXED
    CHECK(cudaStreamWaitEvent(download, computed, 0));
#endif
    CHECK(cudaMemcpyAsync(result, out, BYTES, cudaMemcpyDeviceToHost, download)); // access
    wait_for_device();
    bool is_right = is_linear(result, 3, 0);
    CHECK(cudaEventDestroy(computed));
    CHECK(cudaStreamDestroy(compute));
    CHECK(cudaStreamDestroy(download));
    CHECK(cudaFree(out));
    CHECK(cudaFreeHost(result));
    return finish(is_right);
}
