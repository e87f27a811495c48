// Host nodes and empty nodes: functions are called at each launch, after what they depend on.
#include "show.h"
#include <vector>

struct Log {
    int *value;
    int factor;
    std::vector<int> seen;
};

static void CUDART_CB note(void *data) {
    Log *log = (Log *)data;
    log->seen.push_back(*log->value * log->factor);
}

__global__ void increment(int *word) { *word += 1; }

int main() {
    int *word = NULL, zero = 0;
    static int host = 0;
    CHECK(cudaMalloc(&word, sizeof(int)));
    CHECK(cudaMemcpy(word, &zero, sizeof zero, cudaMemcpyHostToDevice));
    // A small copy from pageable memory may return before it is complete, and the stream does not wait for it.
    CHECK(cudaDeviceSynchronize());
    Log log = {&host, 1, {}}, other = {&host, 10, {}};
    cudaGraph_t graph;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphNode_t kernels[2], barrier, copy, call;
    void *arguments[] = {&word};
    cudaKernelNodeParams params = {};
    params.func = (void *)increment;
    params.gridDim = params.blockDim = dim3(1);
    params.kernelParams = arguments;
    CHECK(cudaGraphAddKernelNode(&kernels[0], graph, NULL, 0, &params));
    CHECK(cudaGraphAddKernelNode(&kernels[1], graph, &kernels[0], 1, &params));
    CHECK(cudaGraphAddEmptyNode(&barrier, graph, kernels, 2));
    CHECK(cudaGraphAddMemcpyNode1D(&copy, graph, &barrier, 1, &host, word, sizeof host, cudaMemcpyDeviceToHost));
    cudaHostNodeParams host_params = {note, &log};
    CHECK(cudaGraphAddHostNode(&call, graph, &copy, 1, &host_params));
    cudaGraphNodeType type;
    CHECK(cudaGraphNodeGetType(barrier, &type));
    printf("empty: %d\n", type == cudaGraphNodeTypeEmpty);
    CHECK(cudaGraphNodeGetType(call, &type));
    printf("host: %d\n", type == cudaGraphNodeTypeHost);

    cudaGraphExec_t exec;
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++) CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    cudaHostNodeParams found;
    CHECK(cudaGraphHostNodeGetParams(call, &found));
    printf("function: %d, data: %d\n", found.fn == note, found.userData == &log);
    host_params.userData = &other;
    CHECK(cudaGraphExecHostNodeSetParams(exec, call, &host_params));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaGraphHostNodeGetParams(call, &found));
    printf("the node is unchanged: %d\n", found.userData == &log);
    for (int value : log.seen) printf("%d ", value);
    printf("and");
    for (int value : other.seen) printf(" %d", value);
    printf("\n");
    host_params.fn = NULL;
    SHOW(cudaGraphAddHostNode(&call, graph, NULL, 0, &host_params));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(word));
    return 0;
}
