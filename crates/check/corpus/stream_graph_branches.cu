// A graph with two kernel nodes. The second reads what the first writes, but was added without a dependency.
// On a GPU the nodes may run in parallel; with one stream behind the graph they run in the order of creation, and nothing shows.
// Origin: graphs that are built by hand.
// kind: stream-race
#include "corpus.h"

__global__ void produce(int *data) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    data[i] = i * 5; // other
}

__global__ void consume(const int *data, int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = data[i] + 1; // access
}

int main() {
    int *data = new_zeroed(), *out = new_zeroed();
    cudaStream_t stream = new_stream();
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    cudaGraphNode_t first, second;
    CHECK(cudaGraphCreate(&graph, 0));
    void *arguments[] = {&data, &out};
    cudaKernelNodeParams node = {};
    node.gridDim = dim3(BLOCKS);
    node.blockDim = dim3(THREADS);
    node.kernelParams = arguments;
    node.func = (void *)produce;
    CHECK(cudaGraphAddKernelNode(&first, graph, NULL, 0, &node));
    node.func = (void *)consume;
#ifdef FIXED
    CHECK(cudaGraphAddKernelNode(&second, graph, &first, 1, &node));
#else
    CHECK(cudaGraphAddKernelNode(&second, graph, NULL, 0, &node));
#endif
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(cudaGraphLaunch(executable, stream));
    bool is_right = is_linear(read_back(out), 5, 1);
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(data));
    CHECK(cudaFree(out));
    return finish(is_right);
}
