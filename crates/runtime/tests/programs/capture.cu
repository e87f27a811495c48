// A stream is captured, and its graph launched several times.
#include "show.h"

__global__ void scale(float *x, float factor) { x[threadIdx.x] *= factor; }
__global__ void shift(float *x, float offset) { x[threadIdx.x] += offset; }

static const char *state(cudaStream_t stream) {
    cudaStreamCaptureStatus status;
    CHECK(cudaStreamIsCapturing(stream, &status));
    return status == cudaStreamCaptureStatusNone     ? "none"
           : status == cudaStreamCaptureStatusActive ? "active"
                                                     : "invalidated";
}

int main() {
    float host[64], back[64], *block = NULL;
    for (int i = 0; i < 64; i++) host[i] = i;
    CHECK(cudaMalloc(&block, sizeof host));
    CHECK(cudaMemcpy(block, host, sizeof host, cudaMemcpyHostToDevice));
    // A small copy from pageable memory may return before it is complete, and the stream does not wait for it.
    CHECK(cudaDeviceSynchronize());
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    printf("before: %s\n", state(stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    scale<<<1, 64, 0, stream>>>(block, 2);
    shift<<<1, 64, 0, stream>>>(block, 1);
    CHECK(cudaMemcpyAsync(back, block, sizeof back, cudaMemcpyDeviceToHost, stream));
    printf("during: %s\n", state(stream));
    cudaGraph_t graph;
    CHECK(cudaStreamEndCapture(stream, &graph));
    printf("after: %s\n", state(stream));

    size_t nodes = 0, edges = 0, roots = 0;
    CHECK(cudaGraphGetNodes(graph, NULL, &nodes));
    CHECK(cudaGraphGetEdges(graph, NULL, NULL, NULL, &edges));
    CHECK(cudaGraphGetRootNodes(graph, NULL, &roots));
    printf("nodes %zu, edges %zu, roots %zu\n", nodes, edges, roots);

    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaGraphUpload(exec, stream));
    for (int launch = 0; launch < 3; launch++) {
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        printf("launch %d: %g %g\n", launch, back[0], back[63]);
    }
    CHECK(cudaGraphExecDestroy(exec));
    SHOW(cudaStreamBeginCapture(cudaStreamLegacy, cudaStreamCaptureModeGlobal));
    SHOW(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(block));
    return 0;
}
