// The memory is freed in the stream, and a kernel that is submitted to the same stream afterwards still reads it.
// On a GPU the memory stays mapped in the pool, and the numbers are right until someone else gets the block.
// Origin: cuCascade#186 (258 uses after free, wrong results in 39 % of runs).
// kind: use-after-free
#include "corpus.h"

__global__ void scale(const int *in, int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[i] * 2; // access
}

int main() {
    int *in = NULL, *out = new_zeroed();
    cudaStream_t stream = new_stream();
    CHECK(cudaMallocAsync(&in, BYTES, stream)); // allocated
    CHECK(cudaStreamSynchronize(stream));
    write_counted(in);
#ifndef FIXED
    CHECK(cudaFreeAsync(in, stream)); // freed
#endif
    scale<<<BLOCKS, THREADS, 0, stream>>>(in, out);
#ifdef FIXED
    CHECK(cudaFreeAsync(in, stream));
#endif
    bool is_right = is_linear(read_back(out), 2, 0);
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(out));
    return finish(is_right);
}
