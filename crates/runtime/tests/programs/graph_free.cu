// A node that frees memory of a graph, and the memory that graphs hold.
#include "show.h"

__global__ void set(int *to, int value) { to[threadIdx.x] = value + threadIdx.x; }

static unsigned long long read(cudaGraphMemAttributeType attribute) {
    unsigned long long value = 77;
    CHECK(cudaDeviceGetGraphMemAttribute(0, attribute, &value));
    return value;
}

int main() {
    cudaGraph_t graph;
    cudaGraphNode_t allocated, kernel, copied, freed;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaMemAllocNodeParams params = {};
    params.poolProps.allocType = cudaMemAllocationTypePinned;
    params.poolProps.location.type = cudaMemLocationTypeDevice;
    params.bytesize = 4 << 20;
    CHECK(cudaGraphAddMemAllocNode(&allocated, graph, NULL, 0, &params));
    int *block = (int *)params.dptr, value = 5, back[4] = {};
    void *arguments[] = {&block, &value}, *read_back = NULL;
    cudaKernelNodeParams launch = {};
    launch.func = (void *)set;
    launch.gridDim = dim3(1);
    launch.blockDim = dim3(4);
    launch.kernelParams = arguments;
    CHECK(cudaGraphAddKernelNode(&kernel, graph, &allocated, 1, &launch));
    CHECK(cudaGraphAddMemcpyNode1D(&copied, graph, &kernel, 1, back, block, sizeof back, cudaMemcpyDeviceToHost));
    CHECK(cudaGraphAddMemFreeNode(&freed, graph, &copied, 1, block));
    CHECK(cudaGraphMemFreeNodeGetParams(freed, &read_back));
    printf("frees the block: %d\n", read_back == (void *)block);
    SHOW(cudaGraphAddMemFreeNode(&freed, graph, &copied, 1, block));
    SHOW(cudaGraphMemFreeNodeGetParams(kernel, &read_back));
    SHOW(cudaGraphAddMemFreeNode(&freed, graph, &copied, 1, NULL));
    cudaGraphNodeType type;
    size_t count = 0;
    CHECK(cudaGraphGetNodes(graph, NULL, &count));
    printf("%zu nodes\n", count);
    cudaGraphNode_t nodes[4];
    CHECK(cudaGraphGetNodes(graph, nodes, &count));
    CHECK(cudaGraphNodeGetType(nodes[count - 1], &type));
    printf("the last is a free node: %d\n", type == cudaGraphNodeTypeMemFree);

    cudaGraphExec_t exec, again = NULL;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    SHOW(cudaGraphInstantiate(&again, graph, 0));
    for (int round = 0; round < 3; round++) {
        memset(back, 0, sizeof back);
        CHECK(cudaGraphLaunch(exec, 0));
        CHECK(cudaStreamSynchronize(0));
        printf("%d %d %d %d, high %d\n", back[0], back[1], back[2], back[3], read(cudaGraphMemAttrUsedMemHigh) >= 4 << 20);
    }
    printf("held for the next launch: %d\n", read(cudaGraphMemAttrReservedMemCurrent) >= 4 << 20);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaDeviceGraphMemTrim(0));
    printf("after a trim: %llu\n", read(cudaGraphMemAttrReservedMemCurrent));
    unsigned long long zero = 0, one = 1;
    SHOW(cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrUsedMemHigh, &zero));
    SHOW(cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrReservedMemHigh, &zero));
    SHOW(cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrUsedMemHigh, &one));
    SHOW(cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrUsedMemCurrent, &zero));
    SHOW(cudaDeviceSetGraphMemAttribute(100, cudaGraphMemAttrUsedMemHigh, &zero));
    printf("high %llu %llu\n", read(cudaGraphMemAttrUsedMemHigh), read(cudaGraphMemAttrReservedMemHigh));
    CHECK(cudaGraphDestroy(graph));
    return 0;
}
