// A stream is destroyed while it has work. The work goes on, but the handle may be given to a new stream: whatever keeps
// state by handle takes the new stream for the old one.
// On a GPU nothing shows by itself.
// Origin: rmm#649.
// kind: stream-in-use
#include "corpus.h"

__global__ void fill(int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = i; // other
}

int main() {
    int *out = new_zeroed();
    cudaStream_t stream = new_stream();
    hold(stream);
    fill<<<BLOCKS, THREADS, 0, stream>>>(out);
#ifdef FIXED
    CHECK(cudaStreamSynchronize(stream));
#endif
    CHECK(cudaStreamDestroy(stream)); // access
    bool is_right = is_linear(read_back(out), 1, 0);
    CHECK(cudaFree(out));
    return finish(is_right);
}
