// cudaMemcpy from pageable memory may return when the data is in a staging buffer, before it is in device memory. The kernel's
// stream does not wait for the legacy default stream, in which the copy runs.
// On a GPU the kernel can read memory that the copy has not reached.
// Origin: rust-cuda#15.
// kind: stream-race
#include "corpus.h"

__global__ void scale(const int *in, int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[i] * 2; // access
}

int main() {
    int *in = new_zeroed(), *out = new_zeroed();
    cudaStream_t stream = new_stream();
    Numbers numbers(N);
    for (int i = 0; i < N; i++) numbers[i] = i;
    CHECK(cudaMemcpy(in, numbers.values, BYTES, cudaMemcpyHostToDevice)); // other
#ifdef FIXED
    CHECK(cudaStreamSynchronize(cudaStreamLegacy));
#endif
    scale<<<BLOCKS, THREADS, 0, stream>>>(in, out);
    bool is_right = is_linear(read_back(out), 2, 0);
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(in));
    CHECK(cudaFree(out));
    return finish(is_right);
}
