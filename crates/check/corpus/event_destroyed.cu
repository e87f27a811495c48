// An event is destroyed while a stream waits for it. The driver keeps what it needs, but wrappers that recycle handles record it again
// for something else.
// On a GPU nothing shows by itself.
// Origin: cudf#16018 (an event destroyed at the end of a thread).
// kind: event-in-use
#include "corpus.h"

__global__ void produce(int *data) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    data[i] = i;
}

__global__ void consume(const int *data, int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = data[i] * 2;
}

int main() {
    int *data = new_zeroed(), *out = new_zeroed();
    cudaStream_t first = new_stream(), second = new_stream();
    cudaEvent_t produced = new_event();
    hold(first);
    produce<<<BLOCKS, THREADS, 0, first>>>(data);
    CHECK(cudaEventRecord(produced, first));
    CHECK(cudaStreamWaitEvent(second, produced, 0));
    consume<<<BLOCKS, THREADS, 0, second>>>(data, out);
#ifdef FIXED
    CHECK(cudaStreamSynchronize(second));
#endif
    CHECK(cudaEventDestroy(produced)); // access
    bool is_right = is_linear(read_back(out), 2, 0);
    CHECK(cudaStreamDestroy(first));
    CHECK(cudaStreamDestroy(second));
    CHECK(cudaFree(data));
    CHECK(cudaFree(out));
    return finish(is_right);
}
