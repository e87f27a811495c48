// A kernel in the legacy default stream, and its reader in a stream that was created with cudaStreamNonBlocking: such a stream does
// not wait for the default stream, as other streams do.
// On a GPU the kernels may overlap. Usually the first is done before the second is submitted.
// Origin: alpaka#850.
// kind: stream-race
#include "corpus.h"

__global__ void produce(int *data) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    data[i] = i + 7; // other
}

__global__ void consume(const int *data, int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = data[i] * 2; // access
}

int main() {
    int *data = new_zeroed(), *out = new_zeroed();
    cudaStream_t stream;
#ifdef FIXED
    CHECK(cudaStreamCreate(&stream));
#else
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
#endif
    hold(cudaStreamLegacy);
    produce<<<BLOCKS, THREADS>>>(data);
    consume<<<BLOCKS, THREADS, 0, stream>>>(data, out);
    bool is_right = is_linear(read_back(out), 2, 14);
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(data));
    CHECK(cudaFree(out));
    return finish(is_right);
}
