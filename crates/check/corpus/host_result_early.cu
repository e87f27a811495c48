// The host reads page-locked memory while a copy to it is pending: cudaMemcpyAsync returns before the copy.
// On a GPU the host sees old numbers, or part of the new ones. A small copy after a short kernel is often in time.
// Origin: the first mistake with cudaMemcpyAsync.
// kind: host-race
#include "corpus.h"

__global__ void fill(int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = 2;
}

int main() {
    int *result = new_pinned(), *out = new_zeroed();
    for (int i = 0; i < N; i++) result[i] = 0;
    cudaStream_t stream = new_stream();
    hold(stream);
    fill<<<BLOCKS, THREADS, 0, stream>>>(out);
    CHECK(cudaMemcpyAsync(result, out, BYTES, cudaMemcpyDeviceToHost, stream)); // other
#ifdef FIXED
    CHECK(cudaStreamSynchronize(stream));
#endif
    int sum = 0;
    for (int i = 0; i < N; i++) sum += result[i]; // access
    wait_for_device();
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(out));
    CHECK(cudaFreeHost(result));
    return finish(sum == 2 * N);
}
