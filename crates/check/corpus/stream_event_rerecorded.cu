// One event is recorded in two streams, one after the other. A wait is for the latest record only, so the consumer does not wait for the
// first stream.
// On a GPU nothing shows if the first stream is the faster one.
// Origin: one event for each buffer instead of one for each stream.
// kind: stream-race
#include "corpus.h"

__global__ void lower(int *data) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    data[i] = i + 2; // other
}

__global__ void upper(int *data) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    data[N + i] = N + i + 2;
}

__global__ void consume(const int *data, int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = data[i] * 2; // access
}

int main() {
    int *data = new_zeroed(2 * N), *out = new_zeroed(2 * N);
    cudaStream_t first = new_stream(), second = new_stream(), consumer = new_stream();
    cudaEvent_t produced = new_event();
    hold(first);
    lower<<<BLOCKS, THREADS, 0, first>>>(data);
    CHECK(cudaEventRecord(produced, first));
#ifdef FIXED
    CHECK(cudaStreamWaitEvent(consumer, produced, 0));
#endif
    upper<<<BLOCKS, THREADS, 0, second>>>(data);
    CHECK(cudaEventRecord(produced, second));
    CHECK(cudaStreamWaitEvent(consumer, produced, 0));
    consume<<<2 * BLOCKS, THREADS, 0, consumer>>>(data, out);
    bool is_right = is_linear(read_back(out, 2 * N), 2, 4);
    CHECK(cudaEventDestroy(produced));
    CHECK(cudaStreamDestroy(first));
    CHECK(cudaStreamDestroy(second));
    CHECK(cudaStreamDestroy(consumer));
    CHECK(cudaFree(data));
    CHECK(cudaFree(out));
    return finish(is_right);
}
