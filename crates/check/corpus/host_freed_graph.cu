// A graph was captured with a copy from page-locked memory, which is freed before the graph is launched: the graph keeps the address.
// On a GPU the launch copies what lies there now, or faults.
// Origin: candle#3352, warp#1419.
// kind: host-memory-freed
#include "corpus.h"

int main() {
    int *data = new_zeroed(), *staging = new_pinned();
    cudaStream_t stream = new_stream();
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaMemcpyAsync(data, staging, BYTES, cudaMemcpyHostToDevice, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
#ifndef FIXED
    CHECK(cudaFreeHost(staging)); // freed
#endif
    CHECK(cudaGraphLaunch(executable, stream)); // access
    bool is_right = is_linear(read_back(data), 1, 0);
#ifdef FIXED
    CHECK(cudaFreeHost(staging));
#endif
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(data));
    return finish(is_right);
}
