// Work of several streams, ordered by events.
#include "show.h"

__global__ void fill_with(int *to, int count, int value) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) to[i] = value;
}

__global__ void add(int *to, const int *from, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) to[i] = to[i] * 10 + from[i];
}

int main() {
    const int count = 10000;
    int *left = NULL, *right = NULL, back[4];
    CHECK(cudaMalloc(&left, count * sizeof(int)));
    CHECK(cudaMalloc(&right, count * sizeof(int)));
    cudaStream_t first, second;
    CHECK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    cudaEvent_t ready, done;
    CHECK(cudaEventCreateWithFlags(&ready, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));

    // An event that was never recorded holds nothing up.
    CHECK(cudaStreamWaitEvent(first, done, 0));
    for (int round = 1; round <= 5; round++) {
        fill_with<<<40, 256, 0, first>>>(left, count, round);
        CHECK(cudaEventRecord(ready, first));
        fill_with<<<40, 256, 0, second>>>(right, count, 9 - round);
        CHECK(cudaStreamWaitEvent(second, ready, 0));
        add<<<40, 256, 0, second>>>(left, right, count);
        CHECK(cudaEventRecord(done, second));
        CHECK(cudaStreamWaitEvent(first, done, 0));
        CHECK(cudaGetLastError());
        CHECK(cudaMemcpyAsync(back, left + count - 4, sizeof back, cudaMemcpyDeviceToHost, first));
        CHECK(cudaStreamSynchronize(first));
        printf("round %d: %d %d\n", round, back[0], back[3]);
    }
    CHECK(cudaEventSynchronize(done));
    SHOW(cudaEventQuery(done));
    SHOW(cudaStreamWaitEvent(first, NULL, 0));
    SHOW(cudaStreamWaitEvent(first, done, 7));
    CHECK(cudaEventDestroy(ready));
    CHECK(cudaEventDestroy(done));
    CHECK(cudaStreamDestroy(first));
    CHECK(cudaStreamDestroy(second));
    CHECK(cudaFree(left));
    CHECK(cudaFree(right));
    return 0;
}
