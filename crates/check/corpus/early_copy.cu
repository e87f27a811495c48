// Memory of cudaMallocFromPoolAsync is filled by a copy in an upload stream, which does not wait for the allocation.
// On a GPU nothing shows if the pool had the memory already; otherwise the copy may overwrite the block of its last user.
// Origin: upload streams with stream-ordered memory.
// kind: use-before-allocation
#include "corpus.h"

int main() {
    int *staging = new_pinned(), *data = NULL;
    cudaMemPool_t pool;
    cudaStream_t owner = new_stream(), upload = new_stream();
    cudaEvent_t allocated = new_event();
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    CHECK(cudaMallocFromPoolAsync(&data, BYTES, pool, owner)); // allocated
    CHECK(cudaEventRecord(allocated, owner));
#ifdef FIXED
    CHECK(cudaStreamWaitEvent(upload, allocated, 0));
#endif
    CHECK(cudaMemcpyAsync(data, staging, BYTES, cudaMemcpyHostToDevice, upload)); // access
    bool is_right = is_linear(read_back(data), 1, 0);
    CHECK(cudaFreeAsync(data, owner));
    CHECK(cudaStreamSynchronize(owner));
    CHECK(cudaEventDestroy(allocated));
    CHECK(cudaStreamDestroy(owner));
    CHECK(cudaStreamDestroy(upload));
    CHECK(cudaFreeHost(staging));
    return finish(is_right);
}
