// A capture that forks into a second stream by an event and joins it again.
#include "show.h"

__global__ void set(int *to, int value) { to[threadIdx.x] = value; }
__global__ void combine(int *to, const int *left, const int *right) {
    to[threadIdx.x] = left[threadIdx.x] * 100 + right[threadIdx.x];
}

int main() {
    int *blocks = NULL, back[32];
    CHECK(cudaMalloc(&blocks, 3 * sizeof back));
    int *left = blocks, *right = blocks + 32, *sum = blocks + 64;
    cudaStream_t first, second;
    cudaEvent_t fork, join;
    CHECK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));

    CHECK(cudaStreamBeginCapture(first, cudaStreamCaptureModeGlobal));
    set<<<1, 32, 0, first>>>(sum, 0);
    CHECK(cudaEventRecord(fork, first));
    CHECK(cudaStreamWaitEvent(second, fork, 0));
    set<<<1, 32, 0, first>>>(left, 7);
    set<<<1, 32, 0, second>>>(right, 5);
    CHECK(cudaEventRecord(join, second));
    CHECK(cudaStreamWaitEvent(first, join, 0));
    combine<<<1, 32, 0, first>>>(sum, left, right);
    cudaGraph_t graph;
    CHECK(cudaStreamEndCapture(first, &graph));

    cudaGraphNode_t nodes[8], from[8], to[8];
    size_t count = 8, edges = 8;
    CHECK(cudaGraphGetNodes(graph, nodes, &count));
    CHECK(cudaGraphGetEdges(graph, from, to, NULL, &edges));
    int kernels = 0, most = 0;
    for (size_t i = 0; i < count; i++) {
        cudaGraphNodeType type;
        size_t before = 0;
        CHECK(cudaGraphNodeGetType(nodes[i], &type));
        CHECK(cudaGraphNodeGetDependencies(nodes[i], NULL, NULL, &before));
        kernels += type == cudaGraphNodeTypeKernel;
        most = (int)before > most ? (int)before : most;
    }
    printf("nodes %zu, kernels %d, edges %zu, most dependencies %d\n", count, kernels, edges, most);

    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, second));
    CHECK(cudaMemcpyAsync(back, sum, sizeof back, cudaMemcpyDeviceToHost, second));
    CHECK(cudaStreamSynchronize(second));
    printf("%d %d\n", back[0], back[31]);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));

    // Without the join the capture fails, and both streams are free again.
    CHECK(cudaStreamBeginCapture(first, cudaStreamCaptureModeRelaxed));
    CHECK(cudaEventRecord(fork, first));
    CHECK(cudaStreamWaitEvent(second, fork, 0));
    set<<<1, 32, 0, second>>>(right, 6);
    SHOW(cudaStreamEndCapture(first, &graph));
    set<<<1, 32, 0, second>>>(right, 8);
    CHECK(cudaStreamSynchronize(second));
    CHECK(cudaEventDestroy(fork));
    CHECK(cudaEventDestroy(join));
    CHECK(cudaStreamDestroy(first));
    CHECK(cudaStreamDestroy(second));
    CHECK(cudaFree(blocks));
    return 0;
}
