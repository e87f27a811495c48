// A sum over a block in shared memory, without a barrier between the steps: threads of one warp read what another has not written yet.
// On a GPU warps mostly run in step, and the sum is right; it is wrong under load or on another GPU.
// Origin: the first exercise of every course.
// kind: shared-race
#include "corpus.h"

__global__ void reduce(const int *in, int *out) {
    __shared__ int sums[THREADS];
    int t = threadIdx.x;
    sums[t] = in[blockIdx.x * blockDim.x + t];
    __syncthreads();
    for (int stride = THREADS / 2; stride > 0; stride /= 2) {
        if (t < stride) sums[t] += sums[t + stride]; // access // other
#ifdef FIXED
        __syncthreads();
#endif
    }
    if (t == 0) out[blockIdx.x] = sums[0];
}

int main() {
    int *in = new_counted(), *out = new_zeroed(BLOCKS);
    reduce<<<BLOCKS, THREADS>>>(in, out);
    Numbers sums = read_back(out, BLOCKS);
    int sum = 0;
    for (int block = 0; block < BLOCKS; block++) sum += sums[block];
    CHECK(cudaFree(in));
    CHECK(cudaFree(out));
    return finish(sum == N * (N - 1) / 2);
}
