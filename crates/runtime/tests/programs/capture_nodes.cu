// Nodes added by hand to a graph that is being captured, and a capture into a graph that exists.
#include "show.h"

__global__ void append(int *word, int digit) { *word = *word * 10 + digit; }

static cudaGraphNode_t add_kernel(cudaGraph_t graph, const cudaGraphNode_t *after, size_t count, int *word, int digit) {
    void *arguments[] = {&word, &digit};
    cudaKernelNodeParams params = {};
    params.func = (void *)append;
    params.gridDim = dim3(1);
    params.blockDim = dim3(1);
    params.kernelParams = arguments;
    cudaGraphNode_t node;
    CHECK(cudaGraphAddKernelNode(&node, graph, after, count, &params));
    return node;
}

static void run(cudaGraph_t graph, cudaStream_t stream, int *word) {
    cudaGraphExec_t exec;
    int zero = 0, result = 0;
    CHECK(cudaMemcpy(word, &zero, sizeof zero, cudaMemcpyHostToDevice));
    // A small copy from pageable memory may return before it is complete, and the stream does not wait for it.
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(&result, word, sizeof result, cudaMemcpyDeviceToHost));
    CHECK(cudaGraphExecDestroy(exec));
    printf("%d\n", result);
}

int main() {
    int *word = NULL;
    CHECK(cudaMalloc(&word, sizeof(int)));
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    cudaStreamCaptureStatus status;
    CHECK(cudaStreamGetCaptureInfo(stream, &status, NULL, NULL, NULL, NULL, NULL));
    printf("capturing: %d\n", status != cudaStreamCaptureStatusNone);

    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    append<<<1, 1, 0, stream>>>(word, 1);
    cudaGraph_t graph, captured;
    const cudaGraphNode_t *nodes;
    unsigned long long id = 0, later = 0;
    size_t count = 0;
    CHECK(cudaStreamGetCaptureInfo(stream, &status, &id, &captured, &nodes, NULL, &count));
    printf("capturing: %d, dependencies %zu\n", status == cudaStreamCaptureStatusActive, count);
    cudaGraphNode_t added = add_kernel(captured, nodes, count, word, 2);
    CHECK(cudaStreamUpdateCaptureDependencies(stream, &added, NULL, 1, cudaStreamSetCaptureDependencies));
    append<<<1, 1, 0, stream>>>(word, 3);
    CHECK(cudaStreamGetCaptureInfo(stream, &status, &later, NULL, NULL, NULL, NULL));
    CHECK(cudaStreamEndCapture(stream, &graph));
    printf("the same graph: %d, the same capture: %d\n", graph == captured, id == later);
    run(graph, stream, word);

    // The nodes of a second capture come after one of the first.
    cudaGraphNode_t all[8], last = NULL;
    count = 8;
    CHECK(cudaGraphGetNodes(graph, all, &count));
    for (size_t i = 0; i < count; i++) {
        size_t dependents = 0;
        CHECK(cudaGraphNodeGetDependentNodes(all[i], NULL, NULL, &dependents));
        if (dependents == 0) last = all[i];
    }
    CHECK(cudaStreamBeginCaptureToGraph(stream, graph, &last, NULL, 1, cudaStreamCaptureModeThreadLocal));
    append<<<1, 1, 0, stream>>>(word, 4);
    append<<<1, 1, 0, stream>>>(word, 5);
    CHECK(cudaStreamEndCapture(stream, &captured));
    printf("the same graph: %d\n", graph == captured);
    run(graph, stream, word);
    SHOW(cudaStreamUpdateCaptureDependencies(stream, &last, NULL, 1, cudaStreamAddCaptureDependencies));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(word));
    return 0;
}
