// A library that the program loads itself: its kernels are launched by their handles, and its variables have addresses.
#include "show.h"

static const char image[] = R"(
.version 7.0
.target sm_52
.address_size 64
.visible .global .align 4 .u32 counter = 5;
.visible .entry add(.param .u32 value)
{
    .reg .b32 %r<3>;
    ld.param.u32 %r1, [value];
    atom.global.add.u32 %r2, [counter], %r1;
    ret;
}
.visible .entry nothing()
{
    ret;
}
)";

__global__ void own() {}

int main() {
    cudaLibrary_t library;
    CHECK(cudaLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
    unsigned count = 0;
    CHECK(cudaLibraryGetKernelCount(&count, library));
    cudaKernel_t kernels[2] = {NULL, NULL}, add, nothing;
    CHECK(cudaLibraryEnumerateKernels(kernels, 2, library));
    CHECK(cudaLibraryGetKernel(&add, library, "add"));
    CHECK(cudaLibraryGetKernel(&nothing, library, "nothing"));
    int found = (kernels[0] == add || kernels[1] == add) + (kernels[0] == nothing || kernels[1] == nothing);
    printf("kernels %u, found %d\n", count, found);

    unsigned *counter = NULL, value = 0, seven = 7;
    size_t bytes = 0;
    CHECK(cudaLibraryGetGlobal((void **)&counter, &bytes, library, "counter"));
    CHECK(cudaMemcpy(&value, counter, sizeof value, cudaMemcpyDeviceToHost));
    printf("%zu bytes, %u\n", bytes, value);
    void *arguments[] = {&seven};
    CHECK(cudaLaunchKernel((const void *)add, dim3(1), dim3(32), arguments, 0, 0));
    CHECK(cudaLaunchKernel((const void *)nothing, dim3(1), dim3(1), NULL, 0, 0));
    CHECK(cudaMemcpy(&value, counter, sizeof value, cudaMemcpyDeviceToHost));
    printf("%u\n", value);

    // In a graph too.
    cudaGraph_t graph;
    cudaGraphNode_t node;
    cudaGraphExec_t exec;
    cudaKernelNodeParams params = {};
    params.func = (void *)add;
    params.gridDim = dim3(2);
    params.blockDim = dim3(10);
    params.kernelParams = arguments;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphAddKernelNode(&node, graph, NULL, 0, &params));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, 0));
    CHECK(cudaMemcpy(&value, counter, sizeof value, cudaMemcpyDeviceToHost));
    printf("%u\n", value);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));

    SHOW(cudaLibraryGetKernel(&add, library, "subtract"));
    SHOW(cudaLibraryGetGlobal((void **)&counter, &bytes, library, "absent"));
    SHOW(cudaLibraryLoadFromFile(&library, "/nowhere/absent.ptx", NULL, NULL, 0, NULL, NULL, 0));
    cudaKernel_t registered;
    CHECK(cudaGetKernel(&registered, own));
    CHECK(cudaLaunchKernel((const void *)registered, dim3(1), dim3(1), NULL, 0, 0));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaLibraryUnload(library));
    return 0;
}
