// Two arrays share the dynamic shared memory of a block. The second starts at half of its place, so the arrays overlap: two threads
// write one word.
// On a GPU the result is wrong, in words that depend on the order of the warps.
// Origin: an offset computed by hand, in the wrong unit.
// kind: shared-race
#include "corpus.h"

__global__ void combine(const int *in, int *out) {
    extern __shared__ int memory[];
    int *first = memory;
#ifdef FIXED
    int *second = memory + THREADS;
#else
    int *second = memory + THREADS / 2;
#endif
    int t = threadIdx.x;
    first[t] = in[t];      // other
    second[t] = 2 * in[t]; // access
    __syncthreads();
    out[t] = first[THREADS - 1 - t] + second[THREADS - 1 - t];
}

int main() {
    int *in = new_counted(THREADS), *out = new_zeroed(THREADS);
    combine<<<1, THREADS, 2 * THREADS * sizeof(int)>>>(in, out);
    bool is_right = is_linear(read_back(out, THREADS), -3, 3 * (THREADS - 1));
    CHECK(cudaFree(in));
    CHECK(cudaFree(out));
    return finish(is_right);
}
