// The host reads managed memory while a kernel writes it. A GPU that lets host and device access managed memory at the same time does not
// fault, and nothing waits.
// On a GPU the host sees old numbers, or some of the new ones. Older GPUs end with a segmentation fault.
// Origin: code that moved from cudaMemcpy, which waited, to managed memory.
// kind: host-race
#include "corpus.h"

__global__ void fill(int *data) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    data[i] = 3; // other
}

int main() {
    int *data = NULL;
    CHECK(cudaMallocManaged(&data, BYTES));
    for (int i = 0; i < N; i++) data[i] = 0;
    cudaStream_t stream = new_stream();
    fill<<<BLOCKS, THREADS, 0, stream>>>(data);
#ifdef FIXED
    CHECK(cudaStreamSynchronize(stream));
#endif
    int sum = 0;
    for (int i = 0; i < N; i++) sum += data[i]; // access
    wait_for_device();
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(data));
    return finish(sum == 3 * N);
}
