// An event is used after it was destroyed: the destructor of a thread's cache ran before the last user.
// On a GPU the call returns an error, crashes, or uses a new event that has the same handle.
// Origin: rmm#510 (a free list of a destroyed event), cudf#16018.
// kind: event-in-use
#include "corpus.h"

__global__ void fill(int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = i;
}

int main() {
    int *out = new_zeroed();
    cudaStream_t stream = new_stream();
    cudaEvent_t filled = new_event();
    fill<<<BLOCKS, THREADS, 0, stream>>>(out);
    CHECK(cudaStreamSynchronize(stream));
#ifndef FIXED
    CHECK(cudaEventDestroy(filled));
#endif
    CHECK(cudaEventRecord(filled, stream)); // access
    bool is_right = is_linear(read_back(out), 1, 0);
#ifdef FIXED
    CHECK(cudaEventDestroy(filled));
#endif
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(out));
    return finish(is_right);
}
