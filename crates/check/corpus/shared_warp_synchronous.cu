// A sum over one warp in shared memory that relies on the threads of a warp running in lockstep. Since Volta they need not:
// __syncwarp is missing.
// On a GPU the compiler usually keeps the warp together, and nothing shows.
// Origin: "warp-synchronous programming" of old reduction samples.
// kind: shared-race
#include "corpus.h"

__global__ void reduce(const int *in, int *out) {
    __shared__ int sums[32];
    int t = threadIdx.x;
    sums[t] = in[t];
    __syncwarp();
    for (int stride = 16; stride > 0; stride /= 2) {
        if (t < stride) sums[t] += sums[t + stride]; // access // other
#ifdef FIXED
        __syncwarp();
#endif
    }
    if (t == 0) *out = sums[0];
}

int main() {
    int *in = new_counted(), *out = new_zeroed(1);
    reduce<<<1, 32>>>(in, out);
    bool is_right = read_back(out, 1)[0] == 32 * 31 / 2;
    CHECK(cudaFree(in));
    CHECK(cudaFree(out));
    return finish(is_right);
}
