// Nodes of an executable graph get other parameters, and are switched off and on.
#include "show.h"

__global__ void add(int *to, int value) { to[threadIdx.x] += value; }
__global__ void subtract(int *to, int value) { to[threadIdx.x] -= value; }

static cudaKernelNodeParams launch_of(void *function, void **arguments) {
    cudaKernelNodeParams params = {};
    params.func = function;
    params.gridDim = dim3(1);
    params.blockDim = dim3(16);
    params.kernelParams = arguments;
    return params;
}

int main() {
    int *block = NULL, *other = NULL;
    static int back[16];
    CHECK(cudaMalloc(&block, sizeof back));
    CHECK(cudaMalloc(&other, sizeof back));
    cudaGraph_t graph;
    cudaGraphNode_t filled, kernel, copied;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaMemsetParams fill_params = {};
    fill_params.dst = block;
    fill_params.elementSize = 4;
    fill_params.value = 100;
    fill_params.width = 16;
    fill_params.height = 1;
    CHECK(cudaGraphAddMemsetNode(&filled, graph, NULL, 0, &fill_params));
    int five = 5, eight = 8;
    void *arguments[] = {&block, &five}, *changed[] = {&block, &eight};
    cudaKernelNodeParams params = launch_of((void *)add, arguments);
    CHECK(cudaGraphAddKernelNode(&kernel, graph, &filled, 1, &params));
    CHECK(cudaGraphAddMemcpyNode1D(&copied, graph, &kernel, 1, back, block, sizeof back, cudaMemcpyDeviceToHost));
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));

    auto run = [&](const char *name) {
        CHECK(cudaGraphLaunch(exec, 0));
        CHECK(cudaDeviceSynchronize());
        printf("%s: %d %d\n", name, back[0], back[15]);
    };
    run("as built");
    params = launch_of((void *)add, changed);
    CHECK(cudaGraphExecKernelNodeSetParams(exec, kernel, &params));
    run("other arguments");
    params = launch_of((void *)subtract, changed);
    CHECK(cudaGraphExecKernelNodeSetParams(exec, kernel, &params));
    run("another kernel");
    fill_params.value = 300;
    CHECK(cudaGraphExecMemsetNodeSetParams(exec, filled, &fill_params));
    run("another value");
    unsigned enabled = 9;
    CHECK(cudaGraphNodeSetEnabled(exec, kernel, 0));
    CHECK(cudaGraphNodeGetEnabled(exec, kernel, &enabled));
    printf("enabled %u\n", enabled);
    run("without the kernel");
    CHECK(cudaGraphNodeSetEnabled(exec, kernel, 1));
    CHECK(cudaGraphNodeGetEnabled(exec, kernel, &enabled));
    printf("enabled %u\n", enabled);
    run("with the kernel");
    CHECK(cudaMemcpy(other, back, sizeof back, cudaMemcpyHostToDevice));
    CHECK(cudaGraphExecMemcpyNodeSetParams1D(exec, copied, back, other, sizeof back, cudaMemcpyDeviceToHost));
    CHECK(cudaGraphNodeSetEnabled(exec, filled, 0));
    run("from elsewhere");

    SHOW(cudaGraphExecMemcpyNodeSetParams1D(exec, kernel, back, other, sizeof back, cudaMemcpyDeviceToHost));
    SHOW(cudaGraphExecMemsetNodeSetParams(exec, copied, &fill_params));
    // The nodes of the graph are as they were.
    cudaMemsetParams found;
    CHECK(cudaGraphMemsetNodeGetParams(filled, &found));
    printf("value in the graph: %u\n", found.value);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaFree(block));
    CHECK(cudaFree(other));
    return 0;
}
