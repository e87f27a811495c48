// The event is recorded before the kernel that it should stand for, so the other stream waits for what was submitted earlier.
// On a GPU nothing shows as long as the first kernel is short.
// Origin: the order of two lines; seen in code that wraps launches in functions.
// kind: stream-race
#include "corpus.h"

__global__ void produce(int *data) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    data[i] = i + 1; // other
}

__global__ void consume(const int *data, int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = data[i] * 3; // access
}

int main() {
    int *data = new_zeroed(), *out = new_zeroed();
    cudaStream_t first = new_stream(), second = new_stream();
    cudaEvent_t produced = new_event();
#ifndef FIXED
    CHECK(cudaEventRecord(produced, first));
#endif
    hold(first);
    produce<<<BLOCKS, THREADS, 0, first>>>(data);
#ifdef FIXED
    CHECK(cudaEventRecord(produced, first));
#endif
    CHECK(cudaStreamWaitEvent(second, produced, 0));
    consume<<<BLOCKS, THREADS, 0, second>>>(data, out);
    bool is_right = is_linear(read_back(out), 3, 3);
    CHECK(cudaEventDestroy(produced));
    CHECK(cudaStreamDestroy(first));
    CHECK(cudaStreamDestroy(second));
    CHECK(cudaFree(data));
    CHECK(cudaFree(out));
    return finish(is_right);
}
