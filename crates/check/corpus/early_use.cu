// Memory of cudaMallocAsync exists for other streams only when they are ordered after the allocation. A kernel in another stream does not
// wait.
// On a GPU nothing shows if the pool had the memory already; otherwise the kernel may fault, or share the block with its last user.
// Origin: stream-ordered allocation used like cudaMalloc.
// kind: use-before-allocation
#include "corpus.h"

__global__ void fill(int *data) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    data[i] = i; // access
}

int main() {
    int *data = NULL;
    cudaStream_t owner = new_stream(), user = new_stream();
    cudaEvent_t allocated = new_event();
    CHECK(cudaMallocAsync(&data, BYTES, owner)); // allocated
    CHECK(cudaEventRecord(allocated, owner));
#ifdef FIXED
    CHECK(cudaStreamWaitEvent(user, allocated, 0));
#endif
    fill<<<BLOCKS, THREADS, 0, user>>>(data);
    bool is_right = is_linear(read_back(data), 1, 0);
    CHECK(cudaFreeAsync(data, owner));
    CHECK(cudaStreamSynchronize(owner));
    CHECK(cudaEventDestroy(allocated));
    CHECK(cudaStreamDestroy(owner));
    CHECK(cudaStreamDestroy(user));
    return finish(is_right);
}
