// Double buffering: uploads alternate between two buffers. Kernels wait for uploads, but an upload does not wait for the kernel that
// still reads the buffer.
// On a GPU kernels that are shorter than copies hide it; a slower kernel reads the numbers of the next part.
// Origin: the forgotten half of the pattern.
// kind: stream-race
#include "corpus.h"

const int PARTS = 6;

__global__ void process(const int *buffer, int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = buffer[i] * 2; // other
}

int main() {
    int *staging = new_pinned(PARTS * N), *out = new_zeroed(PARTS * N);
    int *buffers[2] = {new_zeroed(), new_zeroed()};
    cudaEvent_t filled[2] = {new_event(), new_event()}, emptied[2] = {new_event(), new_event()};
    cudaStream_t upload = new_stream(), compute = new_stream();
    hold(compute);
    for (int part = 0; part < PARTS; part++) {
        int side = part % 2;
#ifdef FIXED
        CHECK(cudaStreamWaitEvent(upload, emptied[side], 0));
#endif
        CHECK(cudaMemcpyAsync(buffers[side], staging + part * N, BYTES, cudaMemcpyHostToDevice, upload)); // access
        CHECK(cudaEventRecord(filled[side], upload));
        CHECK(cudaStreamWaitEvent(compute, filled[side], 0));
        process<<<BLOCKS, THREADS, 0, compute>>>(buffers[side], out + part * N);
        CHECK(cudaEventRecord(emptied[side], compute));
    }
    bool is_right = is_linear(read_back(out, PARTS * N), 2, 0);
    for (int side = 0; side < 2; side++) {
        CHECK(cudaEventDestroy(filled[side]));
        CHECK(cudaEventDestroy(emptied[side]));
        CHECK(cudaFree(buffers[side]));
    }
    CHECK(cudaStreamDestroy(upload));
    CHECK(cudaStreamDestroy(compute));
    CHECK(cudaFree(out));
    CHECK(cudaFreeHost(staging));
    return finish(is_right);
}
