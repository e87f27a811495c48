// A barrier inside a branch that only half of the block takes.
// On a GPU the barrier ends when the other threads have exited, so nothing shows; with work after the branch it would hang.
// Origin: a barrier that slipped into an `if`.
// kind: barrier-divergence
#include "corpus.h"

__global__ void reverse(const int *in, int *out) {
    __shared__ int values[THREADS];
    int t = threadIdx.x;
    values[t] = in[t];
#ifdef FIXED
    __syncthreads();
#endif
    if (t < THREADS / 2) {
#ifndef FIXED
        __syncthreads(); // access
#endif
        out[t] = 2 * values[THREADS / 2 - 1 - t];
    }
}

int main() {
    int *in = new_counted(THREADS), *out = new_zeroed(THREADS / 2);
    reverse<<<1, THREADS>>>(in, out);
    bool is_right = is_linear(read_back(out, THREADS / 2), -2, THREADS - 2);
    CHECK(cudaFree(in));
    CHECK(cudaFree(out));
    return finish(is_right);
}
