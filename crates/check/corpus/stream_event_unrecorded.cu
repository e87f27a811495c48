// The event was created, but never recorded. Waiting for such an event is not an error, and waits for nothing.
// On a GPU nothing shows as long as the producer is short.
// Origin: the mechanism behind rmm#2489, without a pool.
// kind: stream-race
#include "corpus.h"

__global__ void produce(int *data) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    data[i] = i; // other
}

int main() {
    int *data = new_zeroed(), *copy = new_zeroed();
    cudaStream_t first = new_stream(), second = new_stream();
    cudaEvent_t produced = new_event();
    hold(first);
    produce<<<BLOCKS, THREADS, 0, first>>>(data);
#ifdef FIXED
    CHECK(cudaEventRecord(produced, first));
#endif
    CHECK(cudaStreamWaitEvent(second, produced, 0));
    CHECK(cudaMemcpyAsync(copy, data, BYTES, cudaMemcpyDeviceToDevice, second)); // access
    bool is_right = is_linear(read_back(copy), 1, 0);
    CHECK(cudaEventDestroy(produced));
    CHECK(cudaStreamDestroy(first));
    CHECK(cudaStreamDestroy(second));
    CHECK(cudaFree(data));
    CHECK(cudaFree(copy));
    return finish(is_right);
}
