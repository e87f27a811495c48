// The threads of a block exchange numbers through global memory, and the barrier between writing and reading is missing.
// On a GPU a warp reads what the other warps of its block have not written yet.
// Origin: shared memory that became too small and was moved to global memory.
// kind: global-race
#include "corpus.h"

__global__ void reverse(const int *in, int *scratch, int *out) {
    int start = blockIdx.x * blockDim.x, t = threadIdx.x;
    scratch[start + t] = in[start + t]; // other
#ifdef FIXED
    __syncthreads();
#endif
    out[start + THREADS - 1 - t] = scratch[start + THREADS - 1 - t] * 2; // access
}

int main() {
    int *in = new_counted(), *scratch = new_zeroed(), *out = new_zeroed();
    reverse<<<BLOCKS, THREADS>>>(in, scratch, out);
    bool is_right = is_linear(read_back(out), 2, 0);
    CHECK(cudaFree(in));
    CHECK(cudaFree(scratch));
    CHECK(cudaFree(out));
    return finish(is_right);
}
