// A histogram without atomics: threads that find the same number read, add and write one counter at a time.
// On a GPU counts get lost. The total is wrong, and differs between runs.
// Origin: the forgotten atomicAdd.
// kind: global-race
#include "corpus.h"

__global__ void count(const int *in, int *bins) {
    int bin = in[blockIdx.x * blockDim.x + threadIdx.x] % 32;
#ifdef FIXED
    atomicAdd(&bins[bin], 1);
#else
    bins[bin] = bins[bin] + 1; // access // other
#endif
}

int main() {
    int *in = new_counted(), *bins = new_zeroed(32);
    count<<<BLOCKS, THREADS>>>(in, bins);
    bool is_right = is_linear(read_back(bins, 32), 0, N / 32);
    CHECK(cudaFree(in));
    CHECK(cudaFree(bins));
    return finish(is_right);
}
