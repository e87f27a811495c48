// The host polls until a stream is done before it submits the next step, but polls the wrong stream.
// On a GPU the loop takes long enough for the short kernel to end.
// Origin: progress loops that keep streams by number.
// kind: stream-race
#include "corpus.h"

__global__ void produce(int *data) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    data[i] = i - 4; // other
}

__global__ void consume(const int *data, int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = data[i] + 4; // access
}

int main() {
    int *data = new_zeroed(), *out = new_zeroed();
    cudaStream_t first = new_stream(), second = new_stream();
    hold(first);
    produce<<<BLOCKS, THREADS, 0, first>>>(data);
#ifdef FIXED
    while (cudaStreamQuery(first) == cudaErrorNotReady) {
    }
#else
    while (cudaStreamQuery(second) == cudaErrorNotReady) {
    }
#endif
    consume<<<BLOCKS, THREADS, 0, second>>>(data, out);
    bool is_right = is_linear(read_back(out), 1, 0);
    CHECK(cudaStreamDestroy(first));
    CHECK(cudaStreamDestroy(second));
    CHECK(cudaFree(data));
    CHECK(cudaFree(out));
    return finish(is_right);
}
