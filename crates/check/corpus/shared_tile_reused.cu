// A loop over tiles in shared memory. The barrier after filling a tile is there; the one before filling the next is missing, so a fast
// warp overwrites a tile that a slow one still reads.
// On a GPU it shows when warps drift apart.
// Origin: tiled matrix products with one of their two barriers.
// kind: shared-race
#include "corpus.h"

__global__ void add_neighbours(const int *in, int *out) {
    __shared__ int tile[THREADS];
    int t = threadIdx.x, sum = 0;
    for (int start = 0; start < N; start += THREADS) {
        tile[t] = in[start + t]; // access
        __syncthreads();
        sum += tile[THREADS - 1 - t]; // other
#ifdef FIXED
        __syncthreads();
#endif
    }
    out[t] = sum;
}

int main() {
    int *in = new_counted(), *out = new_zeroed(THREADS);
    add_neighbours<<<1, THREADS>>>(in, out);
    int start_sum = THREADS * (BLOCKS * (BLOCKS - 1) / 2);
    bool is_right = is_linear(read_back(out, THREADS), -BLOCKS, start_sum + BLOCKS * (THREADS - 1));
    CHECK(cudaFree(in));
    CHECK(cudaFree(out));
    return finish(is_right);
}
