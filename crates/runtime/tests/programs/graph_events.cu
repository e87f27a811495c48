// Nodes that record events and wait for them.
#include "show.h"

__global__ void set(int *word, int value) { *word = value; }
__global__ void twice(int *word) { *word *= 2; }

int main() {
    int *word = NULL, result = 0;
    CHECK(cudaMalloc(&word, sizeof(int)));
    cudaEvent_t begin, end, before;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    CHECK(cudaEventCreateWithFlags(&before, cudaEventDisableTiming));
    cudaGraph_t graph;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphNode_t waiting, started, kernel, ended;
    CHECK(cudaGraphAddEventWaitNode(&waiting, graph, NULL, 0, before));
    CHECK(cudaGraphAddEventRecordNode(&started, graph, &waiting, 1, end));
    void *arguments[] = {&word};
    cudaKernelNodeParams params = {};
    params.func = (void *)twice;
    params.gridDim = params.blockDim = dim3(1);
    params.kernelParams = arguments;
    CHECK(cudaGraphAddKernelNode(&kernel, graph, &started, 1, &params));
    CHECK(cudaGraphAddEventRecordNode(&ended, graph, &kernel, 1, end));
    CHECK(cudaGraphEventRecordNodeSetEvent(started, begin));
    cudaEvent_t found;
    CHECK(cudaGraphEventRecordNodeGetEvent(started, &found));
    printf("records begin: %d\n", found == begin);
    CHECK(cudaGraphEventWaitNodeGetEvent(waiting, &found));
    printf("waits for before: %d\n", found == before);

    cudaStream_t stream, other;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 1; i <= 3; i++) {
        set<<<1, 1, 0, other>>>(word, 10 * i);
        CHECK(cudaEventRecord(before, other));
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaEventSynchronize(end));
        CHECK(cudaMemcpy(&result, word, sizeof result, cudaMemcpyDeviceToHost));
        float milliseconds = -1;
        CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
        printf("%d, time passed: %d\n", result, milliseconds >= 0);
    }
    CHECK(cudaGraphExecEventRecordNodeSetEvent(exec, ended, before));
    CHECK(cudaGraphExecEventWaitNodeSetEvent(exec, waiting, end));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaEventSynchronize(before));
    CHECK(cudaMemcpy(&result, word, sizeof result, cudaMemcpyDeviceToHost));
    printf("%d\n", result);
    SHOW(cudaGraphEventWaitNodeGetEvent(started, &found));
    SHOW(cudaGraphEventRecordNodeGetEvent(kernel, &found));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaStreamDestroy(other));
    CHECK(cudaEventDestroy(begin));
    CHECK(cudaEventDestroy(end));
    CHECK(cudaEventDestroy(before));
    CHECK(cudaFree(word));
    return 0;
}
