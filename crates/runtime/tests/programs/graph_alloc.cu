// Memory that belongs to graphs: allocation and free nodes, by hand and captured, and memory that outlives its launch.
#include "show.h"

__global__ void set(int *to, int value) { to[threadIdx.x] = value + threadIdx.x; }
__global__ void twice(int *to, const int *from) { to[threadIdx.x] = 2 * from[threadIdx.x]; }

int main() {
    int *result = NULL, back[32];
    CHECK(cudaMalloc(&result, sizeof back));
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));

    // Captured: the memory lives from one node to another.
    int *scratch = NULL;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaMallocAsync(&scratch, sizeof back, stream));
    set<<<1, 32, 0, stream>>>(scratch, 10);
    twice<<<1, 32, 0, stream>>>(result, scratch);
    CHECK(cudaFreeAsync(scratch, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    size_t count = 8;
    cudaGraphNode_t nodes[8];
    int allocations = 0, frees = 0;
    CHECK(cudaGraphGetNodes(graph, nodes, &count));
    for (size_t i = 0; i < count; i++) {
        cudaGraphNodeType type;
        CHECK(cudaGraphNodeGetType(nodes[i], &type));
        allocations += type == cudaGraphNodeTypeMemAlloc;
        frees += type == cudaGraphNodeTypeMemFree;
    }
    printf("nodes %zu, allocations %d, frees %d\n", count, allocations, frees);
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++) CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaMemcpyAsync(back, result, sizeof back, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    printf("%d %d\n", back[0], back[31]);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));

    // By hand: the memory outlives the launch, and is freed outside.
    CHECK(cudaGraphCreate(&graph, 0));
    cudaMemAllocNodeParams alloc = {};
    alloc.poolProps.allocType = cudaMemAllocationTypePinned;
    alloc.poolProps.location.type = cudaMemLocationTypeDevice;
    alloc.bytesize = sizeof back;
    cudaGraphNode_t allocated, kernel;
    CHECK(cudaGraphAddMemAllocNode(&allocated, graph, NULL, 0, &alloc));
    int *kept = (int *)alloc.dptr, value = 70;
    void *arguments[] = {&kept, &value};
    cudaKernelNodeParams params = {};
    params.func = (void *)set;
    params.gridDim = dim3(1);
    params.blockDim = dim3(32);
    params.kernelParams = arguments;
    CHECK(cudaGraphAddKernelNode(&kernel, graph, &allocated, 1, &params));
    cudaMemAllocNodeParams found;
    CHECK(cudaGraphMemAllocNodeGetParams(allocated, &found));
    printf("bytes %zu, the same address: %d\n", found.bytesize, found.dptr == kept);
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, stream));
    twice<<<1, 32, 0, stream>>>(result, kept);
    SHOW(cudaGraphLaunch(exec, stream));
    CHECK(cudaFreeAsync(kept, stream));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaMemcpyAsync(back, kept, sizeof back, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    printf("%d %d\n", back[0], back[31]);
    CHECK(cudaMemcpy(back, result, sizeof back, cudaMemcpyDeviceToHost));
    printf("%d %d\n", back[0], back[31]);
    CHECK(cudaFree(kept));
    CHECK(cudaGraphExecDestroy(exec));

    // Each launch frees what the last one left.
    CHECK(cudaGraphInstantiateWithFlags(&exec, graph, cudaGraphInstantiateFlagAutoFreeOnLaunch));
    for (int i = 0; i < 3; i++) CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    unsigned long long used = 0;
    CHECK(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrUsedMemCurrent, &used));
    printf("memory in use: %d\n", used >= sizeof back);
    CHECK(cudaFree(kept));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaDeviceGraphMemTrim(0));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(result));
    return 0;
}
