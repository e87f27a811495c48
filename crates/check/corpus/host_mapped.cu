// A kernel reads its parameters in page-locked memory that is mapped, and the host prepares the parameters of the next launch there.
// On a GPU the first kernel may use the second parameters. It does so if the launch is delayed.
// Origin: zero-copy parameter blocks.
// kind: host-race
#include "corpus.h"

__global__ void scale(const int *parameters, int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = i * parameters[0]; // other
}

int main() {
    int *parameters = NULL, *first = new_zeroed(), *second = new_zeroed();
    CHECK(cudaHostAlloc(&parameters, sizeof(int), cudaHostAllocMapped));
    cudaStream_t stream = new_stream();
    parameters[0] = 2;
    hold(stream);
    scale<<<BLOCKS, THREADS, 0, stream>>>(parameters, first);
#ifdef FIXED
    CHECK(cudaStreamSynchronize(stream));
#endif
    parameters[0] = 3; // access
    scale<<<BLOCKS, THREADS, 0, stream>>>(parameters, second);
    bool is_right = is_linear(read_back(first), 2, 0) && is_linear(read_back(second), 3, 0);
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(first));
    CHECK(cudaFree(second));
    CHECK(cudaFreeHost(parameters));
    return finish(is_right);
}
