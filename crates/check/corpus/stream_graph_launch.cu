// A graph is launched in one stream, and its result is read by a kernel in another stream, without a wait.
// On a GPU a graph starts fast and is short, and nothing shows.
// Origin: code that was moved into a graph, and had its events left behind.
// kind: stream-race
#include "corpus.h"

__global__ void produce(int *data) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    data[i] = i + 1; // other
}

__global__ void consume(const int *data, int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = data[i] * 4; // access
}

int main() {
    int *data = new_zeroed(), *out = new_zeroed();
    cudaStream_t first = new_stream(), second = new_stream();
    cudaEvent_t launched = new_event();
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    CHECK(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal));
    produce<<<BLOCKS, THREADS, 0, first>>>(data);
    CHECK(cudaStreamEndCapture(first, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    hold(first);
    CHECK(cudaGraphLaunch(executable, first));
    CHECK(cudaEventRecord(launched, first));
#ifdef FIXED
    CHECK(cudaStreamWaitEvent(second, launched, 0));
#endif
    consume<<<BLOCKS, THREADS, 0, second>>>(data, out);
    bool is_right = is_linear(read_back(out), 4, 4);
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaEventDestroy(launched));
    CHECK(cudaStreamDestroy(first));
    CHECK(cudaStreamDestroy(second));
    CHECK(cudaFree(data));
    CHECK(cudaFree(out));
    return finish(is_right);
}
