// Stream-ordered allocation without a word about pools: every kind of stream, and every pair of functions that allocate and
// free.
#include "show.h"

#include <thread>

__global__ void set(int *to, int value) { to[blockIdx.x * blockDim.x + threadIdx.x] = value + blockIdx.x; }

static int back[4096];

// Allocates in a stream, writes there, reads back, and frees.
static void use(const char *name, cudaStream_t stream, int value) {
    int *block = NULL;
    CHECK(cudaMallocAsync(&block, sizeof back, stream));
    set<<<16, 256, 0, stream>>>(block, value);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpyAsync(back, block, sizeof back, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaFreeAsync(block, stream));
    CHECK(cudaStreamSynchronize(stream));
    printf("%s: %d %d\n", name, back[0], back[4095]);
}

int main() {
    cudaStream_t first, second, blocking;
    CHECK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    CHECK(cudaStreamCreate(&blocking));
    use("first", first, 100);
    use("second", second, 200);
    use("blocking", blocking, 300);
    use("default", 0, 400);
    use("legacy", cudaStreamLegacy, 500);
    use("of the thread", cudaStreamPerThread, 600);
    std::thread([] { use("of another thread", cudaStreamPerThread, 700); }).join();
    for (int i = 0; i < 3; i++) {
        cudaStream_t stream;
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        use("of a stream that is destroyed", stream, 800 + i);
        CHECK(cudaStreamDestroy(stream));
    }

    // Freed by another function than the one that allocated it, or in another stream.
    int *block = NULL, *other = NULL;
    CHECK(cudaMallocAsync(&block, 1 << 20, first));
    CHECK(cudaStreamSynchronize(first));
    CHECK(cudaFree(block));
    CHECK(cudaMalloc(&block, 1 << 20));
    set<<<16, 256, 0, first>>>(block, 1);
    CHECK(cudaFreeAsync(block, first));
    CHECK(cudaMallocAsync(&block, 1 << 20, first));
    cudaEvent_t written;
    CHECK(cudaEventCreateWithFlags(&written, cudaEventDisableTiming));
    set<<<16, 256, 0, first>>>(block, 900);
    CHECK(cudaEventRecord(written, first));
    CHECK(cudaStreamWaitEvent(second, written, 0));
    CHECK(cudaMemcpyAsync(back, block, sizeof back, cudaMemcpyDeviceToHost, second));
    CHECK(cudaFreeAsync(block, second));
    CHECK(cudaMallocAsync(&other, 1 << 20, first));
    CHECK(cudaMemsetAsync(other, 0, 1 << 20, first));
    CHECK(cudaDeviceSynchronize());
    printf("in another stream: %d %d\n", back[0], back[4095]);

    // What a block is, and what it is not.
    cudaPointerAttributes attributes;
    CHECK(cudaPointerGetAttributes(&attributes, other));
    printf("type %d, device %d, same pointer %d, host pointer %p\n", attributes.type, attributes.device,
           attributes.devicePointer == other, attributes.hostPointer);
    CHECK(cudaFreeAsync(other, first));
    SHOW(cudaFreeAsync(other, first));
    int local = 0;
    SHOW(cudaFreeAsync(&local, first));
    SHOW(cudaFreeAsync(NULL, first));
    SHOW(cudaMallocAsync((int **)NULL, 100, first));
    SHOW(cudaMallocAsync(&block, 0, first));
    SHOW(cudaMallocAsync(&block, (size_t)1 << 50, first));

    // In a capture an allocation becomes a node, and memory from outside cannot be freed there.
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaMallocAsync(&other, 1 << 16, first));
    CHECK(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaMallocAsync(&block, sizeof back, first));
    set<<<16, 256, 0, first>>>(block, 1000);
    CHECK(cudaMemcpyAsync(back, block, sizeof back, cudaMemcpyDeviceToHost, first));
    CHECK(cudaFreeAsync(block, first));
    CHECK(cudaStreamEndCapture(first, &graph));
    size_t nodes = 0;
    CHECK(cudaGraphGetNodes(graph, NULL, &nodes));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, first));
    CHECK(cudaStreamSynchronize(first));
    printf("%zu nodes: %d %d\n", nodes, back[0], back[4095]);
    CHECK(cudaFreeAsync(other, first));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));

    // Freed while another stream is captured.
    CHECK(cudaMallocAsync(&block, 1 << 16, second));
    CHECK(cudaStreamBeginCapture(first, cudaStreamCaptureModeRelaxed));
    CHECK(cudaFreeAsync(block, second));
    CHECK(cudaMallocAsync(&block, 1 << 16, second));
    CHECK(cudaFreeAsync(block, second));
    CHECK(cudaStreamEndCapture(first, &graph));
    CHECK(cudaGraphDestroy(graph));
    use("after a capture", second, 1100);

    CHECK(cudaEventDestroy(written));
    CHECK(cudaStreamDestroy(first));
    CHECK(cudaStreamDestroy(second));
    CHECK(cudaStreamDestroy(blocking));
    return 0;
}
