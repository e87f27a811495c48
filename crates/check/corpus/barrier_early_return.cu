// Threads beyond the end of the data return before a barrier that the other threads of the block wait at.
// On a GPU exited threads do not count at the barrier, and nothing shows; the programming guide forbids it.
// Origin: `if (i >= n) return;` at the start of every kernel.
// kind: barrier-divergence
#include "corpus.h"

__global__ void reverse(const int *in, int *out, int count) {
    __shared__ int values[THREADS];
    int t = threadIdx.x;
#ifndef FIXED
    if (t >= count) return;
#endif
    if (t < count) values[t] = in[t];
    __syncthreads(); // access
    if (t < count) out[t] = values[count - 1 - t];
}

int main() {
    const int count = THREADS - 10;
    int *in = new_counted(THREADS), *out = new_zeroed(count);
    reverse<<<1, THREADS>>>(in, out, count);
    bool is_right = is_linear(read_back(out, count), -1, count - 1);
    CHECK(cudaFree(in));
    CHECK(cudaFree(out));
    return finish(is_right);
}
