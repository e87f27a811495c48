// A capture with a side stream that is joined too late: the kernel that needs its result was captured before the join, and becomes a
// parallel branch of the graph.
// On a GPU the branches overlap if there is room for both.
// Origin: captures with several streams.
// kind: stream-race
#include "corpus.h"

__global__ void produce(int *data) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    data[i] = i + 3; // other
}

__global__ void consume(const int *data, int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = data[i] * 2; // access
}

int main() {
    int *data = new_zeroed(), *out = new_zeroed();
    cudaStream_t origin = new_stream(), side = new_stream();
    cudaEvent_t forked = new_event(), joined = new_event();
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    CHECK(cudaStreamBeginCapture(origin, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaEventRecord(forked, origin));
    CHECK(cudaStreamWaitEvent(side, forked, 0));
    hold(side);
    produce<<<BLOCKS, THREADS, 0, side>>>(data);
    CHECK(cudaEventRecord(joined, side));
#ifdef FIXED
    CHECK(cudaStreamWaitEvent(origin, joined, 0));
#endif
    consume<<<BLOCKS, THREADS, 0, origin>>>(data, out);
    CHECK(cudaStreamWaitEvent(origin, joined, 0));
    CHECK(cudaStreamEndCapture(origin, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(cudaGraphLaunch(executable, origin));
    bool is_right = is_linear(read_back(out), 2, 6);
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaEventDestroy(forked));
    CHECK(cudaEventDestroy(joined));
    CHECK(cudaStreamDestroy(origin));
    CHECK(cudaStreamDestroy(side));
    CHECK(cudaFree(data));
    CHECK(cudaFree(out));
    return finish(is_right);
}
