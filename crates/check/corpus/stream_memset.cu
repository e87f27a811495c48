// cudaMemset of device memory returns before the memory is set. It runs in the legacy default stream, which a non-blocking stream does
// not wait for.
// On a GPU the memset can overwrite what the kernel has added. It is rare, because a memset is short.
// Origin: alpaka#851.
// kind: stream-race
#include "corpus.h"

__global__ void add(int *sums) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    sums[i] += i; // access
}

int main() {
    int *sums = new_counted();
    cudaStream_t stream = new_stream();
    hold(cudaStreamLegacy);
    CHECK(cudaMemset(sums, 0, BYTES)); // other
#ifdef FIXED
    CHECK(cudaDeviceSynchronize());
#endif
    add<<<BLOCKS, THREADS, 0, stream>>>(sums);
    bool is_right = is_linear(read_back(sums), 1, 0);
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(sums));
    return finish(is_right);
}
