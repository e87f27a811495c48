// A stencil in place: each thread reads its right neighbour, which another thread replaces. A barrier would order the threads of a
// block, but not the blocks; the corrected version writes elsewhere.
// On a GPU values at the edges of warps and blocks are wrong, in some runs.
// Origin: saving memory in a smoothing step.
// kind: global-race
#include "corpus.h"

__global__ void shift(const int *from, int *to) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    to[i] = from[i + 1]; // access // other
}

int main() {
    int *data = new_counted(N + 1), *out = new_zeroed();
#ifdef FIXED
    shift<<<BLOCKS, THREADS>>>(data, out);
#else
    shift<<<BLOCKS, THREADS>>>(data, data);
#endif
    bool is_right = is_linear(read_back(IS_FIXED ? out : data), 1, 1);
    CHECK(cudaFree(data));
    CHECK(cudaFree(out));
    return finish(is_right);
}
