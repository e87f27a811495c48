// A capture continues in a second stream, and ends although the first stream never waits for the second one.
// On a GPU cudaStreamEndCapture returns cudaErrorStreamCaptureUnjoined, and there is no graph.
// Origin: captures with several streams.
// kind: unjoined-capture
#include "corpus.h"

__global__ void fill(int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = i;
}

int main() {
    int *first = new_zeroed(), *second = new_zeroed();
    cudaStream_t origin = new_stream(), side = new_stream();
    cudaEvent_t forked = new_event(), joined = new_event();
    cudaGraph_t graph = NULL;
    CHECK(cudaStreamBeginCapture(origin, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaEventRecord(forked, origin));
    CHECK(cudaStreamWaitEvent(side, forked, 0));
    fill<<<BLOCKS, THREADS, 0, origin>>>(first);
    fill<<<BLOCKS, THREADS, 0, side>>>(second);
    CHECK(cudaEventRecord(joined, side));
#ifdef FIXED
    CHECK(cudaStreamWaitEvent(origin, joined, 0));
#endif
    CHECK(cudaStreamEndCapture(origin, &graph)); // access
    if (graph != NULL) {
        cudaGraphExec_t executable;
        CHECK(cudaGraphInstantiate(&executable, graph, 0));
        CHECK(cudaGraphLaunch(executable, origin));
        CHECK(cudaStreamSynchronize(origin));
        CHECK(cudaGraphExecDestroy(executable));
        CHECK(cudaGraphDestroy(graph));
    }
    bool is_right = is_linear(read_back(first), 1, 0) && is_linear(read_back(second), 1, 0);
    CHECK(cudaEventDestroy(forked));
    CHECK(cudaEventDestroy(joined));
    CHECK(cudaStreamDestroy(origin));
    CHECK(cudaStreamDestroy(side));
    CHECK(cudaFree(first));
    CHECK(cudaFree(second));
    return finish(is_right);
}
