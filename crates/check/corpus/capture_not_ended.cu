// A capture is started, and the program takes a path that never ends it: what it submits is recorded, and never runs.
// On a GPU nothing reports it; the results are those of before.
// Origin: an early exit between begin and end of a capture.
// kind: unjoined-capture
#include "corpus.h"

__global__ void fill(int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = i;
}

int main() {
    int *out = new_zeroed();
    cudaStream_t stream = new_stream();
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed)); // access
    fill<<<BLOCKS, THREADS, 0, stream>>>(out);
#ifdef FIXED
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(cudaGraphLaunch(executable, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
#endif
    Numbers copy(N);
    CHECK(cudaMemcpy(copy.values, out, BYTES, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(out));
    return finish(is_linear(copy, 1, 0));
}
