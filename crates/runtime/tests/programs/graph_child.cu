// Graphs within graphs, and copies of graphs.
#include "show.h"

__global__ void append(int *word, int digit) { *word = *word * 10 + digit; }

static cudaGraphNode_t add(cudaGraph_t graph, const cudaGraphNode_t *after, int *word, int digit) {
    void *arguments[] = {&word, &digit};
    cudaKernelNodeParams params = {};
    params.func = (void *)append;
    params.gridDim = params.blockDim = dim3(1);
    params.kernelParams = arguments;
    cudaGraphNode_t node;
    CHECK(cudaGraphAddKernelNode(&node, graph, after, after ? 1 : 0, &params));
    return node;
}

static void run(const char *name, cudaGraph_t graph, int *word) {
    cudaGraphExec_t exec;
    int result = 0;
    CHECK(cudaMemcpy(word, &result, sizeof result, cudaMemcpyHostToDevice));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, 0));
    CHECK(cudaMemcpy(&result, word, sizeof result, cudaMemcpyDeviceToHost));
    CHECK(cudaGraphExecDestroy(exec));
    printf("%s: %d\n", name, result);
}

int main() {
    int *word = NULL;
    CHECK(cudaMalloc(&word, sizeof(int)));
    cudaGraph_t inner, outer, copy, embedded;
    CHECK(cudaGraphCreate(&inner, 0));
    CHECK(cudaGraphCreate(&outer, 0));
    cudaGraphNode_t two = add(inner, NULL, word, 2);
    cudaGraphNode_t three = add(inner, &two, word, 3);
    cudaGraphNode_t one = add(outer, NULL, word, 1), child, twice;
    CHECK(cudaGraphAddChildGraphNode(&child, outer, &one, 1, inner));
    CHECK(cudaGraphAddChildGraphNode(&twice, outer, &child, 1, inner));
    add(outer, &twice, word, 4);
    run("inner", inner, word);
    run("outer", outer, word);

    // A change of the original is not a change of the copy in the node.
    add(inner, &three, word, 9);
    size_t count = 0;
    CHECK(cudaGraphChildGraphNodeGetGraph(child, &embedded));
    CHECK(cudaGraphGetNodes(embedded, NULL, &count));
    printf("embedded: another graph %d, nodes %zu\n", embedded != inner, count);
    run("inner", inner, word);
    run("outer", outer, word);
    // A change of the graph in the node is.
    cudaGraphNode_t nodes[2];
    count = 2;
    CHECK(cudaGraphGetNodes(embedded, nodes, &count));
    CHECK(cudaGraphDestroyNode(nodes[0]));
    CHECK(cudaGraphGetNodes(embedded, NULL, &count));
    printf("embedded: nodes %zu\n", count);

    CHECK(cudaGraphClone(&copy, inner));
    cudaGraphNode_t found;
    CHECK(cudaGraphNodeFindInClone(&found, three, copy));
    printf("copy: another node %d\n", found != three);
    CHECK(cudaGraphDestroyNode(found));
    size_t edges = 9;
    CHECK(cudaGraphGetNodes(copy, NULL, &count));
    CHECK(cudaGraphGetEdges(copy, NULL, NULL, NULL, &edges));
    printf("copy: nodes %zu, edges %zu\n", count, edges);
    CHECK(cudaGraphGetNodes(inner, NULL, &count));
    printf("original: nodes %zu\n", count);
    SHOW(cudaGraphNodeFindInClone(&found, one, copy));
    CHECK(cudaGraphDestroy(inner));
    CHECK(cudaGraphDestroy(copy));
    CHECK(cudaGraphDestroy(outer));
    CHECK(cudaFree(word));
    return 0;
}
