// A host thread submits to its per-thread default stream and ends. The next thread has another per-thread default stream: joining the
// thread orders the hosts' calls, not the streams.
// On a GPU nothing shows as long as the first kernel is short.
// Origin: code that moved to per-thread default streams (cupy#5069 has the same confusion in a pool).
// kind: stream-race
#include "corpus.h"

#include <thread>

__global__ void produce(int *data) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    data[i] = i + 9; // other
}

__global__ void consume(const int *data, int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = data[i] - 9; // access
}

int main() {
    int *data = new_zeroed(), *out = new_zeroed();
    std::thread([&] {
        hold(cudaStreamPerThread);
        produce<<<BLOCKS, THREADS, 0, cudaStreamPerThread>>>(data);
#ifdef FIXED
        CHECK(cudaStreamSynchronize(cudaStreamPerThread));
#endif
    }).join();
    consume<<<BLOCKS, THREADS, 0, cudaStreamPerThread>>>(data, out);
    bool is_right = is_linear(read_back(out), 1, 0);
    CHECK(cudaFree(data));
    CHECK(cudaFree(out));
    return finish(is_right);
}
