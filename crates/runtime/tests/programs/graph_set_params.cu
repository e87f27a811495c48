// Parameters of nodes that are changed in a graph before it is instantiated, and in the executable graph after.
#include "show.h"

__device__ int table[16];

static void CUDART_CB say(void *data) { printf("%s\n", (const char *)data); }

__global__ void add(int *to, int value) { to[threadIdx.x] += value; }

int main() {
    static int first[16], second[16], back[16], other[16];
    for (int i = 0; i < 16; i++) {
        first[i] = i;
        second[i] = 100 + i;
    }
    cudaGraph_t graph;
    cudaGraphNode_t in, out, host;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphAddMemcpyNodeToSymbol(&in, graph, NULL, 0, table, first, sizeof first, 0, cudaMemcpyHostToDevice));
    CHECK(cudaGraphAddMemcpyNodeFromSymbol(&out, graph, &in, 1, back, table, sizeof back, 0, cudaMemcpyDeviceToHost));
    cudaHostNodeParams words = {};
    words.fn = say;
    words.userData = (void *)"one";
    CHECK(cudaGraphAddHostNode(&host, graph, &out, 1, &words));
    words.userData = (void *)"two";
    CHECK(cudaGraphHostNodeSetParams(host, &words));
    CHECK(cudaGraphMemcpyNodeSetParamsToSymbol(in, table, second, 8 * sizeof(int), 0, cudaMemcpyHostToDevice));
    CHECK(cudaGraphMemcpyNodeSetParamsFromSymbol(out, back, table, 4 * sizeof(int), 2 * sizeof(int), cudaMemcpyDeviceToHost));
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    auto run = [&](const int *result) {
        CHECK(cudaGraphLaunch(exec, 0));
        CHECK(cudaStreamSynchronize(0));
        printf("%d %d %d %d\n", result[0], result[1], result[2], result[3]);
    };
    run(back);
    CHECK(cudaGraphExecMemcpyNodeSetParamsToSymbol(exec, in, table, first, 8 * sizeof(int), 0, cudaMemcpyHostToDevice));
    CHECK(cudaGraphExecMemcpyNodeSetParamsFromSymbol(exec, out, other, table, 4 * sizeof(int), 4 * sizeof(int), cudaMemcpyDeviceToHost));
    run(other);
    SHOW(cudaGraphExecMemcpyNodeSetParamsToSymbol(exec, in, table, first, 17 * sizeof(int), 0, cudaMemcpyHostToDevice));
    SHOW(cudaGraphExecMemcpyNodeSetParamsToSymbol(exec, host, table, first, 4, 0, cudaMemcpyHostToDevice));
    SHOW(cudaGraphMemcpyNodeSetParamsToSymbol(in, table, second, 4, 16 * sizeof(int), cudaMemcpyHostToDevice));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));

    int *block = NULL;
    CHECK(cudaMalloc(&block, sizeof first));
    cudaGraph_t child, changed;
    cudaGraphNode_t node, copy;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphCreate(&child, 0));
    CHECK(cudaGraphAddMemcpyNode1D(&copy, child, NULL, 0, block, first, sizeof first, cudaMemcpyHostToDevice));
    CHECK(cudaGraphAddChildGraphNode(&node, graph, NULL, 0, child));
    CHECK(cudaGraphAddMemcpyNode1D(&out, graph, &node, 1, back, block, sizeof back, cudaMemcpyDeviceToHost));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    run(back);
    CHECK(cudaGraphClone(&changed, child));
    CHECK(cudaGraphNodeFindInClone(&copy, copy, changed));
    CHECK(cudaGraphMemcpyNodeSetParams1D(copy, block, second, sizeof second, cudaMemcpyHostToDevice));
    CHECK(cudaGraphExecChildGraphNodeSetParams(exec, node, changed));
    run(back);
    cudaMemcpy3DParms box = {};
    box.srcPtr = make_cudaPitchedPtr(block, sizeof back, sizeof back, 1);
    box.dstPtr = make_cudaPitchedPtr(other, sizeof back, sizeof back, 1);
    box.extent = make_cudaExtent(sizeof back, 1, 1);
    box.kind = cudaMemcpyDeviceToHost;
    memset(other, 0, sizeof other);
    CHECK(cudaGraphExecMemcpyNodeSetParams(exec, out, &box));
    run(other);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));

    cudaEvent_t one, two, read;
    CHECK(cudaEventCreate(&one));
    CHECK(cudaEventCreate(&two));
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphAddEventWaitNode(&node, graph, NULL, 0, one));
    CHECK(cudaGraphEventWaitNodeSetEvent(node, two));
    CHECK(cudaGraphEventWaitNodeGetEvent(node, &read));
    printf("the second event: %d\n", read == two);
    SHOW(cudaGraphEventWaitNodeSetEvent(node, NULL));
    CHECK(cudaGraphDestroy(graph));
    return 0;
}
