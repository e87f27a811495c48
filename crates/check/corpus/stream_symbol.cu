// A parameter in a __device__ variable is updated in one stream, while a kernel in another stream reads it.
// On a GPU the kernel uses the old or the new parameter, or some blocks the one and some the other.
// Origin: cudaMemcpyToSymbolAsync with a stream of its own.
// kind: stream-race
#include "corpus.h"

__device__ int factor = 1;

__global__ void scale(int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = i * factor; // access
}

int main() {
    int *parameter = new_pinned(4), *out = new_zeroed();
    cudaStream_t update = new_stream(), compute = new_stream();
    cudaEvent_t updated = new_event();
    hold(update);
    CHECK(cudaMemcpyToSymbolAsync(factor, parameter + 3, sizeof(int), 0, cudaMemcpyHostToDevice, update)); // other
    CHECK(cudaEventRecord(updated, update));
#ifdef FIXED
    CHECK(cudaStreamWaitEvent(compute, updated, 0));
#endif
    scale<<<BLOCKS, THREADS, 0, compute>>>(out);
    bool is_right = is_linear(read_back(out), 3, 0);
    CHECK(cudaEventDestroy(updated));
    CHECK(cudaStreamDestroy(update));
    CHECK(cudaStreamDestroy(compute));
    CHECK(cudaFree(out));
    CHECK(cudaFreeHost(parameter));
    return finish(is_right);
}
