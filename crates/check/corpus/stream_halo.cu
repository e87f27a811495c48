// Two streams advance one half of a field each. In the second step each half reads a cell that the other one wrote in the first, and
// nothing orders the two streams between the steps.
// On a GPU equal halves run in step, and the result is mostly right.
// Origin: domain decomposition with one stream for each part.
// kind: stream-race
#include "corpus.h"

__global__ void step(const int *from, int *to, int start) {
    int i = start + blockIdx.x * blockDim.x + threadIdx.x;
    int left = i == 0 ? N - 1 : i - 1, right = i == N - 1 ? 0 : i + 1;
    int sum = from[left] + from[i] + from[right]; // access
    to[i] = sum;                                  // other
}

int main() {
    int *even = new_counted(), *odd = new_zeroed();
    cudaStream_t streams[2] = {new_stream(), new_stream()};
    cudaEvent_t done[2] = {new_event(), new_event()};
    hold(streams[1]);
    for (int half = 0; half < 2; half++) {
        step<<<BLOCKS / 2, THREADS, 0, streams[half]>>>(even, odd, half * N / 2);
        CHECK(cudaEventRecord(done[half], streams[half]));
    }
    for (int half = 0; half < 2; half++) {
#ifdef FIXED
        CHECK(cudaStreamWaitEvent(streams[half], done[1 - half], 0));
#endif
        step<<<BLOCKS / 2, THREADS, 0, streams[half]>>>(odd, even, half * N / 2);
    }
    Numbers values = read_back(even);
    bool is_right = true;
    for (int i = 2; i < N - 2; i++) is_right = is_right && values[i] == 9 * i;
    for (int half = 0; half < 2; half++) {
        CHECK(cudaEventDestroy(done[half]));
        CHECK(cudaStreamDestroy(streams[half]));
    }
    CHECK(cudaFree(even));
    CHECK(cudaFree(odd));
    return finish(is_right);
}
