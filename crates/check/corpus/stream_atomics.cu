// Two streams add to one counter with atomics, which is correct in any order. The stream that reads the sum waits only for its own part.
// On a GPU the sum lacks what the other stream has not added yet.
// Origin: statistics that several streams update.
// kind: stream-race
#include "corpus.h"

__global__ void count(int *total) {
    atomicAdd(total, 1); // other
}

__global__ void publish(const int *total, int *out) {
    *out = *total; // access
}

int main() {
    int *total = new_zeroed(1), *out = new_zeroed(1);
    cudaStream_t first = new_stream(), second = new_stream();
    cudaEvent_t counted = new_event();
    hold(first);
    count<<<BLOCKS, THREADS, 0, first>>>(total);
    CHECK(cudaEventRecord(counted, first));
    count<<<BLOCKS, THREADS, 0, second>>>(total);
#ifdef FIXED
    CHECK(cudaStreamWaitEvent(second, counted, 0));
#endif
    publish<<<1, 1, 0, second>>>(total, out);
    bool is_right = read_back(out, 1)[0] == 2 * N;
    CHECK(cudaEventDestroy(counted));
    CHECK(cudaStreamDestroy(first));
    CHECK(cudaStreamDestroy(second));
    CHECK(cudaFree(total));
    CHECK(cudaFree(out));
    return finish(is_right);
}
