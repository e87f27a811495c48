// Both branches of a condition have a barrier of their own, and the threads of a block take different ones.
// On a GPU the two barriers count as one, so nothing shows until one branch gets a second barrier; then it hangs.
// Origin: a reduction whose barrier slipped into its `if`.
// kind: barrier-divergence
#include "corpus.h"

__global__ void fold(const int *in, int *out) {
    __shared__ int values[THREADS];
    int t = threadIdx.x;
    values[t] = in[t];
#ifdef FIXED
    __syncthreads();
#endif
    if (t < THREADS / 2) {
#ifndef FIXED
        __syncthreads(); // access // other
#endif
        out[t] = values[t] + values[t + THREADS / 2];
    } else {
#ifndef FIXED
        __syncthreads(); // access // other
#endif
        out[t] = values[t];
    }
}

int main() {
    int *in = new_counted(THREADS), *out = new_zeroed(THREADS);
    fold<<<1, THREADS>>>(in, out);
    bool is_right = is_linear(read_back(out, THREADS / 2), 2, THREADS / 2);
    CHECK(cudaFree(in));
    CHECK(cudaFree(out));
    return finish(is_right);
}
