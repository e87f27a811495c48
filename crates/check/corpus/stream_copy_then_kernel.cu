// A copy to the device runs in one stream and the kernel that needs it in another: nothing lets the kernel wait for the copy.
// On a GPU a small copy is nearly always done in time; under load the kernel reads old numbers.
// Origin: the usual mistake with a separate upload stream.
// kind: stream-race
#include "corpus.h"

__global__ void scale(const int *in, int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[i] * 2; // access
}

int main() {
    int *staging = new_pinned(), *in = new_zeroed(), *out = new_zeroed();
    cudaStream_t upload = new_stream(), compute = new_stream();
    cudaEvent_t uploaded = new_event();
    hold(upload);
    CHECK(cudaMemcpyAsync(in, staging, BYTES, cudaMemcpyHostToDevice, upload)); // other
    CHECK(cudaEventRecord(uploaded, upload));
#ifdef FIXED
    CHECK(cudaStreamWaitEvent(compute, uploaded, 0));
#endif
    scale<<<BLOCKS, THREADS, 0, compute>>>(in, out);
    bool is_right = is_linear(read_back(out), 2, 0);
    CHECK(cudaEventDestroy(uploaded));
    CHECK(cudaStreamDestroy(upload));
    CHECK(cudaStreamDestroy(compute));
    CHECK(cudaFree(in));
    CHECK(cudaFree(out));
    CHECK(cudaFreeHost(staging));
    return finish(is_right);
}
