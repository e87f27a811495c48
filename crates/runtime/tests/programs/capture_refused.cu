// Calls that a capture forbids, what becomes of the capture, and the mode in which a thread may make them.
#include "show.h"

__global__ void nothing() {}

static cudaStreamCaptureStatus status_of(cudaStream_t stream) {
    cudaStreamCaptureStatus status;
    CHECK(cudaStreamIsCapturing(stream, &status));
    return status;
}

static void end_invalidated(cudaStream_t stream) {
    cudaGraph_t graph = (cudaGraph_t)1;
    printf("invalidated: %d\n", status_of(stream) == cudaStreamCaptureStatusInvalidated);
    SHOW(cudaStreamEndCapture(stream, &graph));
    printf("no graph: %d, over: %d\n", graph == NULL, status_of(stream) == cudaStreamCaptureStatusNone);
}

int main() {
    cudaStream_t stream, other;
    cudaEvent_t event;
    cudaGraph_t graph;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    nothing<<<1, 1, 0, stream>>>();
    CHECK(cudaStreamSynchronize(stream));

    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    SHOW(cudaStreamSynchronize(stream));
    end_invalidated(stream);

    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaEventRecord(event, stream));
    SHOW(cudaEventSynchronize(event));
    end_invalidated(stream);

    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    void *block = NULL;
    SHOW(cudaMalloc(&block, 1024));
    end_invalidated(stream);

    CHECK(cudaEventRecord(event, other));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    SHOW(cudaStreamWaitEvent(stream, event, 0));
    end_invalidated(stream);

    // A relaxed thread may allocate meanwhile.
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
    printf("mode was global: %d\n", mode == cudaStreamCaptureModeGlobal);
    CHECK(cudaMalloc(&block, 1024));
    CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
    SHOW(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaFree(block));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaEventDestroy(event));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaStreamDestroy(other));
    return 0;
}
