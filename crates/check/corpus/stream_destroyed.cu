// A stream is destroyed, and work is submitted to its handle afterwards. The handle may name another stream by then.
// On a GPU the launch fails, or goes to a stream of somebody else.
// Origin: rmm#649.
// kind: stream-in-use
#include "corpus.h"

__global__ void fill(int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = i;
}

int main() {
    int *out = new_zeroed();
    cudaStream_t stream = new_stream();
#ifndef FIXED
    CHECK(cudaStreamDestroy(stream));
#endif
    CHECK(cudaMemsetAsync(out, 0, BYTES, stream)); // access
#ifdef FIXED
    fill<<<BLOCKS, THREADS, 0, stream>>>(out);
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaStreamDestroy(stream));
#else
    fill<<<BLOCKS, THREADS>>>(out);
#endif
    bool is_right = is_linear(read_back(out), 1, 0);
    CHECK(cudaFree(out));
    return finish(is_right);
}
