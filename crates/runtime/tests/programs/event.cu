// Events: flags, queries, times, and what cannot be asked of them.
#include "show.h"

__global__ void spin(int *count, int rounds) {
    int sum = 0;
    for (int i = 0; i < rounds; i++) sum += i & 3;
    atomicAdd(count, sum);
}

int main() {
    int *count = NULL, zero = 0, result = 0;
    CHECK(cudaMalloc(&count, sizeof(int)));
    CHECK(cudaMemcpy(count, &zero, sizeof zero, cudaMemcpyHostToDevice));
    cudaEvent_t start, end, bare, blocking;
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreateWithFlags(&end, cudaEventDefault));
    CHECK(cudaEventCreateWithFlags(&bare, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&blocking, cudaEventBlockingSync));
    float milliseconds = -1;
    // Never recorded: complete, but without a time.
    SHOW(cudaEventQuery(start));
    SHOW(cudaEventSynchronize(start));
    SHOW(cudaEventElapsedTime(&milliseconds, start, end));

    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaEventRecord(start, stream));
    spin<<<4, 32, 0, stream>>>(count, 100);
    CHECK(cudaEventRecordWithFlags(end, stream, cudaEventRecordDefault));
    CHECK(cudaEventRecord(bare, stream));
    CHECK(cudaEventRecord(blocking, stream));
    CHECK(cudaEventSynchronize(blocking));
    SHOW(cudaEventQuery(end));
    CHECK(cudaEventElapsedTime(&milliseconds, start, end));
    printf("time passed: %d\n", milliseconds >= 0);
    CHECK(cudaEventElapsedTime(&milliseconds, start, start));
    printf("to itself: %g\n", milliseconds);
    SHOW(cudaEventElapsedTime(&milliseconds, start, bare));
    CHECK(cudaMemcpy(&result, count, sizeof result, cudaMemcpyDeviceToHost));
    printf("count %d\n", result);

    SHOW(cudaEventCreateWithFlags(&bare, 64));
    SHOW(cudaEventCreateWithFlags(&bare, cudaEventInterprocess));
    SHOW(cudaEventCreate(NULL));
    SHOW(cudaEventRecord(NULL, stream));
    SHOW(cudaEventElapsedTime(NULL, start, end));
    CHECK(cudaEventDestroy(start));
    CHECK(cudaEventDestroy(end));
    CHECK(cudaEventDestroy(blocking));
    SHOW(cudaEventDestroy(NULL));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(count));
    return 0;
}
