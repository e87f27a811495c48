// Memory is freed in one stream with cudaFreeAsync, while a kernel in another stream still reads it.
// On a GPU the next allocation of the first stream gets the memory, and the kernel reads its numbers.
// Origin: pytorch#188655, cupy#8068 and many more.
// kind: free-in-use
#include "corpus.h"

__global__ void scale(const int *in, int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[i] * 2; // other
}

int main() {
    int *in = NULL, *out = new_zeroed();
    cudaStream_t owner = new_stream(), user = new_stream();
    cudaEvent_t used = new_event();
    CHECK(cudaMallocAsync(&in, BYTES, owner));
    CHECK(cudaStreamSynchronize(owner));
    write_counted(in);
    hold(user);
    scale<<<BLOCKS, THREADS, 0, user>>>(in, out);
    CHECK(cudaEventRecord(used, user));
#ifdef FIXED
    CHECK(cudaStreamWaitEvent(owner, used, 0));
#endif
    CHECK(cudaFreeAsync(in, owner)); // access
    bool is_right = is_linear(read_back(out), 2, 0);
    CHECK(cudaEventDestroy(used));
    CHECK(cudaStreamDestroy(owner));
    CHECK(cudaStreamDestroy(user));
    CHECK(cudaFree(out));
    return finish(is_right);
}
