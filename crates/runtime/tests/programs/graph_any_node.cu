// Nodes of each kind by the one function for all of them.
#include "show.h"

__global__ void add(int *to, int value) { to[threadIdx.x] += value; }

static int calls;
static void CUDART_CB count_call(void *data) { calls += *(int *)data; }

static cudaGraphNode_t add_node(cudaGraph_t graph, cudaGraphNode_t after, cudaGraphNodeParams params) {
    cudaGraphNode_t node;
    CHECK(cudaGraphAddNode(&node, graph, after ? &after : NULL, NULL, after ? 1 : 0, &params));
    cudaGraphNodeType type;
    CHECK(cudaGraphNodeGetType(node, &type));
    printf("type %d as asked: %d\n", params.type, type == params.type);
    return node;
}

int main() {
    int *block = NULL, one = 1, three = 3;
    static int back[16];
    CHECK(cudaMalloc(&block, sizeof back));
    cudaGraph_t graph, inner;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphCreate(&inner, 0));
    cudaGraphNodeParams params = {};
    params.type = cudaGraphNodeTypeMemset;
    params.memset.dst = block;
    params.memset.value = 40;
    params.memset.elementSize = 4;
    params.memset.width = 16;
    params.memset.height = 1;
    cudaGraphNode_t filled = add_node(graph, NULL, params);

    params = {};
    params.type = cudaGraphNodeTypeKernel;
    void *arguments[] = {&block, &three};
    params.kernel.func = (void *)add;
    params.kernel.gridDim = dim3(1);
    params.kernel.blockDim = dim3(16);
    params.kernel.kernelParams = arguments;
    cudaGraphNode_t kernel = add_node(graph, filled, params);
    add_node(inner, NULL, params);

    params = {};
    params.type = cudaGraphNodeTypeGraph;
    params.graph.graph = inner;
    cudaGraphNode_t child = add_node(graph, kernel, params);
    params = {};
    params.type = cudaGraphNodeTypeEmpty;
    cudaGraphNode_t empty = add_node(graph, child, params);
    params = {};
    params.type = cudaGraphNodeTypeMemcpy;
    params.memcpy.copyParams.srcPtr = make_cudaPitchedPtr(block, 64, 64, 1);
    params.memcpy.copyParams.dstPtr = make_cudaPitchedPtr(back, 64, 64, 1);
    params.memcpy.copyParams.extent = make_cudaExtent(64, 1, 1);
    params.memcpy.copyParams.kind = cudaMemcpyDeviceToHost;
    cudaGraphNode_t copied = add_node(graph, empty, params);
    params = {};
    params.type = cudaGraphNodeTypeHost;
    params.host.fn = count_call;
    params.host.userData = &one;
    cudaGraphNode_t call = add_node(graph, copied, params);

    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, 0));
    CHECK(cudaDeviceSynchronize());
    printf("%d %d, calls %d\n", back[0], back[15], calls);
    params.host.userData = &three;
    CHECK(cudaGraphNodeSetParams(call, &params));
    CHECK(cudaGraphLaunch(exec, 0));
    CHECK(cudaGraphExecNodeSetParams(exec, call, &params));
    CHECK(cudaGraphLaunch(exec, 0));
    CHECK(cudaDeviceSynchronize());
    printf("%d %d, calls %d\n", back[0], back[15], calls);
    SHOW(cudaGraphNodeSetParams(kernel, &params));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaGraphDestroy(inner));
    CHECK(cudaFree(block));
    return 0;
}
