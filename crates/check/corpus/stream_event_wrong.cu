// Two streams produce, each with its event. The consumer of the first waits for the event of the second.
// On a GPU both producers usually end at nearly the same time, and nothing shows.
// Origin: an index that is off by one, in arrays of streams and events.
// kind: stream-race
#include "corpus.h"

__global__ void produce(int *data, int offset) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    data[i] = i + offset; // other
}

__global__ void consume(const int *data, int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = data[i] * 2; // access
}

int main() {
    int *data[2] = {new_zeroed(), new_zeroed()}, *out = new_zeroed();
    cudaStream_t producers[2] = {new_stream(), new_stream()}, consumer = new_stream();
    cudaEvent_t produced[2] = {new_event(), new_event()};
    hold(producers[0]);
    for (int i = 0; i < 2; i++) {
        produce<<<BLOCKS, THREADS, 0, producers[i]>>>(data[i], i + 5);
        CHECK(cudaEventRecord(produced[i], producers[i]));
    }
#ifdef FIXED
    CHECK(cudaStreamWaitEvent(consumer, produced[0], 0));
#else
    CHECK(cudaStreamWaitEvent(consumer, produced[1], 0));
#endif
    consume<<<BLOCKS, THREADS, 0, consumer>>>(data[0], out);
    bool is_right = is_linear(read_back(out), 2, 10);
    for (int i = 0; i < 2; i++) {
        CHECK(cudaEventDestroy(produced[i]));
        CHECK(cudaStreamDestroy(producers[i]));
        CHECK(cudaFree(data[i]));
    }
    CHECK(cudaStreamDestroy(consumer));
    CHECK(cudaFree(out));
    return finish(is_right);
}
