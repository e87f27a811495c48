// The structure of a graph: dependencies that are added and removed, and a graph with a cycle.
#include "show.h"

static size_t edges_of(cudaGraph_t graph) {
    size_t count = 0;
    CHECK(cudaGraphGetEdges(graph, NULL, NULL, NULL, &count));
    return count;
}

static size_t roots_of(cudaGraph_t graph) {
    size_t count = 0;
    CHECK(cudaGraphGetRootNodes(graph, NULL, &count));
    return count;
}

static size_t before(cudaGraphNode_t node) {
    size_t count = 0;
    CHECK(cudaGraphNodeGetDependencies(node, NULL, NULL, &count));
    return count;
}

static size_t after(cudaGraphNode_t node) {
    size_t count = 0;
    CHECK(cudaGraphNodeGetDependentNodes(node, NULL, NULL, &count));
    return count;
}

int main() {
    cudaGraph_t graph, other;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphCreate(&other, 0));
    cudaGraphNode_t nodes[5], foreign;
    for (int i = 0; i < 5; i++) CHECK(cudaGraphAddEmptyNode(&nodes[i], graph, NULL, 0));
    CHECK(cudaGraphAddEmptyNode(&foreign, other, NULL, 0));
    printf("edges %zu, roots %zu\n", edges_of(graph), roots_of(graph));
    cudaGraphNode_t from[] = {nodes[0], nodes[0], nodes[1], nodes[2], nodes[3]};
    cudaGraphNode_t to[] = {nodes[1], nodes[2], nodes[3], nodes[3], nodes[4]};
    CHECK(cudaGraphAddDependencies(graph, from, to, NULL, 5));
    printf("edges %zu, roots %zu\n", edges_of(graph), roots_of(graph));
    for (int i = 0; i < 5; i++) printf("node %d: %zu before, %zu after\n", i, before(nodes[i]), after(nodes[i]));

    cudaGraphNode_t few[4], found[2] = {NULL, NULL};
    cudaGraphEdgeData data[2];
    size_t count = 4, pairs = 2;
    CHECK(cudaGraphGetRootNodes(graph, few, &count));
    printf("root: %d, count %zu, the rest is null: %d\n", few[0] == nodes[0], count, !few[1] && !few[2] && !few[3]);
    CHECK(cudaGraphNodeGetDependencies(nodes[3], found, data, &pairs));
    printf("of node 3: %zu, ordinary: %d\n", pairs, data[0].type == 0 && data[1].type == 0);

    SHOW(cudaGraphAddDependencies(graph, &nodes[0], &nodes[1], NULL, 1));
    SHOW(cudaGraphAddDependencies(graph, &nodes[0], &foreign, NULL, 1));
    SHOW(cudaGraphRemoveDependencies(graph, &nodes[0], &nodes[4], NULL, 1));
    CHECK(cudaGraphRemoveDependencies(graph, &nodes[0], &nodes[2], NULL, 1));
    printf("edges %zu, roots %zu\n", edges_of(graph), roots_of(graph));
    cudaGraphNode_t twice[] = {nodes[0], nodes[0]}, extra;
    SHOW(cudaGraphAddEmptyNode(&extra, graph, twice, 2));

    CHECK(cudaGraphAddDependencies(graph, &nodes[4], &nodes[2], NULL, 1));
    cudaGraphExec_t exec;
    cudaGraphInstantiateParams params = {};
    SHOW(cudaGraphInstantiate(&exec, graph, 0));
    SHOW(cudaGraphInstantiateWithParams(&exec, graph, &params));
    printf("invalid structure: %d\n", params.result_out == cudaGraphInstantiateInvalidStructure);
    CHECK(cudaGraphDestroyNode(nodes[4]));
    printf("edges %zu, roots %zu\n", edges_of(graph), roots_of(graph));
    CHECK(cudaGraphInstantiateWithParams(&exec, graph, &params));
    printf("instantiated: %d\n", params.result_out == cudaGraphInstantiateSuccess);
    unsigned long long flags = 99;
    CHECK(cudaGraphExecGetFlags(exec, &flags));
    printf("flags %llu\n", flags);
    CHECK(cudaGraphLaunch(exec, 0));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaGraphDestroy(other));
    return 0;
}
