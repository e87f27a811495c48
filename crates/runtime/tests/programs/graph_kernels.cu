// A graph built of kernel nodes: their parameters, their attributes, and other parameters.
#include "show.h"

__global__ void set(int *to, int value) { to[threadIdx.x] = value + threadIdx.x; }
__global__ void add(int *to, const int *left, const int *right, int factor) {
    to[threadIdx.x] = left[threadIdx.x] + factor * right[threadIdx.x];
}
__global__ void sums(int *to) {
    extern __shared__ int shared[];
    shared[threadIdx.x] = to[threadIdx.x];
    __syncthreads();
    to[threadIdx.x] = shared[threadIdx.x] + shared[blockDim.x - 1 - threadIdx.x];
}

static cudaKernelNodeParams launch_of(void *function, void **arguments, unsigned shared) {
    cudaKernelNodeParams params = {};
    params.func = function;
    params.gridDim = dim3(1);
    params.blockDim = dim3(32);
    params.sharedMemBytes = shared;
    params.kernelParams = arguments;
    return params;
}

int main() {
    int *blocks = NULL, back[32];
    CHECK(cudaMalloc(&blocks, 3 * sizeof back));
    int *left = blocks, *right = blocks + 32, *result = blocks + 64;
    int ten = 10, hundred = 100, factor = 2;
    cudaGraph_t graph;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphNode_t first, second, third, fourth;
    void *set_left[] = {&left, &ten}, *set_right[] = {&right, &hundred}, *sum[] = {&result, &left, &right, &factor};
    void *mirror[] = {&result};
    cudaKernelNodeParams params = launch_of((void *)set, set_left, 0);
    CHECK(cudaGraphAddKernelNode(&first, graph, NULL, 0, &params));
    params = launch_of((void *)set, set_right, 0);
    CHECK(cudaGraphAddKernelNode(&second, graph, NULL, 0, &params));
    cudaGraphNode_t both[] = {first, second};
    params = launch_of((void *)add, sum, 0);
    CHECK(cudaGraphAddKernelNode(&third, graph, both, 2, &params));
    params = launch_of((void *)sums, mirror, sizeof back);
    CHECK(cudaGraphAddKernelNode(&fourth, graph, &third, 1, &params));
    // The node has copies of its arguments.
    factor = 7;
    ten = hundred = -1;

    cudaKernelNodeParams found;
    CHECK(cudaGraphKernelNodeGetParams(third, &found));
    printf("kernel: %d, grid %u, block %u, shared %u, factor %d\n", found.func == (void *)add, found.gridDim.x,
           found.blockDim.x, found.sharedMemBytes, *(int *)found.kernelParams[3]);
    CHECK(cudaGraphKernelNodeGetParams(fourth, &found));
    printf("shared %u, argument: %d\n", found.sharedMemBytes, *(int **)found.kernelParams[0] == result);

    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, 0));
    CHECK(cudaMemcpy(back, result, sizeof back, cudaMemcpyDeviceToHost));
    printf("%d %d %d\n", back[0], back[1], back[31]);
    CHECK(cudaGraphExecDestroy(exec));

    params = launch_of((void *)add, sum, 0);
    CHECK(cudaGraphKernelNodeSetParams(third, &params));
    cudaLaunchAttributeValue value;
    memset(&value, 0, sizeof value);
    value.cooperative = 1;
    CHECK(cudaGraphKernelNodeSetAttribute(first, cudaLaunchAttributeCooperative, &value));
    CHECK(cudaGraphKernelNodeCopyAttributes(second, first));
    memset(&value, 0, sizeof value);
    CHECK(cudaGraphKernelNodeGetAttribute(second, cudaLaunchAttributeCooperative, &value));
    printf("cooperative: %d\n", value.cooperative);
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, 0));
    CHECK(cudaMemcpy(back, result, sizeof back, cudaMemcpyDeviceToHost));
    printf("%d %d %d\n", back[0], back[1], back[31]);

    params.blockDim = dim3(2000);
    SHOW(cudaGraphAddKernelNode(&first, graph, NULL, 0, &params));
    params = launch_of((void *)&ten, sum, 0);
    SHOW(cudaGraphAddKernelNode(&first, graph, NULL, 0, &params));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaFree(blocks));
    return 0;
}
