// A graph keeps the addresses that its kernels were captured with. The memory is freed before the graph is launched.
// On a GPU the launch writes to memory of nobody, or of the next owner. It faults only if the whole page is gone.
// Origin: candle#3352.
// kind: use-after-free
#include "corpus.h"

__global__ void scale(const int *in, int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[i] * 2; // access
}

int main() {
    int *in = NULL, *out = new_zeroed();
    CHECK(cudaMalloc(&in, BYTES)); // allocated
    write_counted(in);
    cudaStream_t stream = new_stream();
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    scale<<<BLOCKS, THREADS, 0, stream>>>(in, out);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
#ifndef FIXED
    CHECK(cudaFree(in)); // freed
#endif
    CHECK(cudaGraphLaunch(executable, stream));
    bool is_right = is_linear(read_back(out), 2, 0);
#ifdef FIXED
    CHECK(cudaFree(in));
#endif
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(out));
    return finish(is_right);
}
