// An executable graph takes over the parameters of a graph of the same structure, and refuses others.
#include "show.h"

__global__ void set(int *to, int value) { to[threadIdx.x] = value; }
__global__ void scale(int *to, int factor) { to[threadIdx.x] *= factor; }

static cudaGraph_t capture(cudaStream_t stream, int *block, int value, int kernels) {
    cudaGraph_t graph;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    set<<<1, 32, 0, stream>>>(block, value);
    for (int i = 1; i < kernels; i++) scale<<<1, 32, 0, stream>>>(block, i + 1);
    CHECK(cudaStreamEndCapture(stream, &graph));
    return graph;
}

static const char *result_name(cudaGraphExecUpdateResult result) {
    switch (result) {
        case cudaGraphExecUpdateSuccess: return "success";
        case cudaGraphExecUpdateErrorTopologyChanged: return "topology changed";
        case cudaGraphExecUpdateErrorNodeTypeChanged: return "node type changed";
        default: return "other";
    }
}

static void update(cudaGraphExec_t exec, cudaGraph_t graph) {
    cudaGraphExecUpdateResultInfo info;
    memset(&info, 0, sizeof info);
    cudaError_t error = cudaGraphExecUpdate(exec, graph, &info);
    printf("%s: %s\n", cudaGetErrorName(error), result_name(info.result));
    cudaGetLastError();
    CHECK(cudaGraphDestroy(graph));
}

int main() {
    int *block = NULL, back[32];
    CHECK(cudaMalloc(&block, sizeof back));
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    cudaGraph_t graph = capture(stream, block, 5, 3), other;
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    auto run = [&]() {
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaMemcpyAsync(back, block, sizeof back, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        printf("%d %d\n", back[0], back[31]);
    };
    run();
    update(exec, capture(stream, block, 7, 3));
    run();
    update(exec, capture(stream, block, 8, 4));
    run();
    // The same number of nodes, one of them of another type.
    CHECK(cudaGraphCreate(&other, 0));
    cudaGraphNode_t nodes[3];
    int value = 9;
    void *arguments[] = {&block, &value};
    cudaKernelNodeParams params = {};
    params.func = (void *)set;
    params.gridDim = dim3(1);
    params.blockDim = dim3(32);
    params.kernelParams = arguments;
    CHECK(cudaGraphAddKernelNode(&nodes[0], other, NULL, 0, &params));
    CHECK(cudaGraphAddKernelNode(&nodes[1], other, &nodes[0], 1, &params));
    CHECK(cudaGraphAddEmptyNode(&nodes[2], other, &nodes[1], 1));
    update(exec, other);
    run();
    update(exec, capture(stream, block, -1, 3));
    run();
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(block));
    return 0;
}
