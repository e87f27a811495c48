// Threads beyond the end of the data write a default and return, past a barrier that the other threads of their warp wait at.
// On a GPU exited threads do not count at the barrier, and nothing shows; the programming guide forbids it.
// Origin: `if (i >= n)` with its own result at the start of a kernel.
// kind: barrier-divergence
#include "corpus.h"

__global__ void reverse(const int *in, int *out, int count) {
    __shared__ int values[THREADS];
    int t = threadIdx.x;
#ifndef FIXED
    if (t >= count) {
        out[t] = -1;
        return;
    }
#endif
    if (t < count) values[t] = in[t];
    __syncthreads(); // access
    if (t < count) out[t] = values[count - 1 - t];
}

int main() {
    const int count = THREADS - 10;
    int *in = new_counted(THREADS), *out = new_zeroed(THREADS);
    reverse<<<1, THREADS>>>(in, out, count);
    bool is_right = is_linear(read_back(out, count), -1, count - 1);
    CHECK(cudaFree(in));
    CHECK(cudaFree(out));
    return finish(is_right);
}
