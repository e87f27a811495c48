// Nodes that copy and fill memory: of consecutive bytes, of boxes, and of variables.
#include "show.h"

__device__ int table[16];

int main() {
    static int host[16], back[16], boxes[16];
    for (int i = 0; i < 16; i++) host[i] = i + 1;
    int *block = NULL, *other = NULL;
    CHECK(cudaMalloc(&block, sizeof host));
    CHECK(cudaMalloc(&other, sizeof host));
    cudaGraph_t graph;
    cudaGraphNode_t filled, copied, stored, loaded, boxed;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaMemsetParams fill_params = {};
    fill_params.dst = other;
    fill_params.value = 0x01010101;
    fill_params.elementSize = 4;
    fill_params.width = 16;
    fill_params.height = 1;
    CHECK(cudaGraphAddMemsetNode(&filled, graph, NULL, 0, &fill_params));
    CHECK(cudaGraphAddMemcpyNode1D(&copied, graph, &filled, 1, block, host, sizeof host, cudaMemcpyHostToDevice));
    CHECK(cudaGraphAddMemcpyNodeToSymbol(&stored, graph, &copied, 1, table, block, 32, 16, cudaMemcpyDeviceToDevice));
    CHECK(cudaGraphAddMemcpyNodeFromSymbol(&loaded, graph, &stored, 1, back, table, 64, 0, cudaMemcpyDeviceToHost));
    // Two of four columns, in all four rows.
    cudaMemcpy3DParms box = {};
    box.srcPtr = make_cudaPitchedPtr(block, 16, 16, 4);
    box.srcPos = make_cudaPos(4, 0, 0);
    box.dstPtr = make_cudaPitchedPtr(other, 16, 16, 4);
    box.extent = make_cudaExtent(8, 4, 1);
    box.kind = cudaMemcpyDeviceToDevice;
    CHECK(cudaGraphAddMemcpyNode(&boxed, graph, &copied, 1, &box));

    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, 0));
    CHECK(cudaDeviceSynchronize());
    printf("variable:");
    for (int i = 0; i < 16; i++) printf(" %d", back[i]);
    CHECK(cudaMemcpy(boxes, other, sizeof boxes, cudaMemcpyDeviceToHost));
    printf("\nbox:");
    for (int i = 0; i < 16; i++) printf(" %x", boxes[i]);
    printf("\n");

    cudaMemsetParams found_fill;
    cudaMemcpy3DParms found;
    CHECK(cudaGraphMemsetNodeGetParams(filled, &found_fill));
    printf("fill: value %x, size %u, width %zu\n", found_fill.value, found_fill.elementSize, found_fill.width);
    CHECK(cudaGraphMemcpyNodeGetParams(boxed, &found));
    printf("box: at %zu, %zu by %zu by %zu, kind %d\n", found.srcPos.x, found.extent.width, found.extent.height,
           found.extent.depth, found.kind);

    fill_params.value = 7;
    fill_params.elementSize = 1;
    fill_params.width = 64;
    CHECK(cudaGraphMemsetNodeSetParams(filled, &fill_params));
    box.extent = make_cudaExtent(4, 2, 1);
    CHECK(cudaGraphMemcpyNodeSetParams(boxed, &box));
    CHECK(cudaGraphMemcpyNodeSetParams1D(loaded, back, block, 8, cudaMemcpyDeviceToHost));
    memset(back, 0, sizeof back);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, 0));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(boxes, other, sizeof boxes, cudaMemcpyDeviceToHost));
    printf("%d %d %d, %x %x %x\n", back[0], back[1], back[2], boxes[0], boxes[1], boxes[8]);

    fill_params.elementSize = 3;
    SHOW(cudaGraphAddMemsetNode(&filled, graph, NULL, 0, &fill_params));
    SHOW(cudaGraphAddMemcpyNodeToSymbol(&stored, graph, NULL, 0, table, block, 64, 16, cudaMemcpyDeviceToDevice));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaFree(block));
    CHECK(cudaFree(other));
    return 0;
}
