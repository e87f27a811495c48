// A sum in one launch: each block writes its part and takes a ticket, and the block with the last ticket adds the parts. Without
// __threadfence between part and ticket, the last block may read parts that are not visible yet.
// On a GPU nothing shows most of the time, because the ticket takes longer than the store.
// Origin: the sample threadFenceReduction, without its fence.
// kind: global-race
#include "corpus.h"

__device__ unsigned tickets;

__global__ void sum_all(const int *in, int *parts, int *total) {
    if (threadIdx.x != 0) return;
    int part = 0;
    for (int i = 0; i < THREADS; i++) part += in[blockIdx.x * THREADS + i];
    parts[blockIdx.x] = part; // other
#ifdef FIXED
    __threadfence();
#endif
    unsigned ticket = atomicAdd(&tickets, 1);
    if (ticket != gridDim.x - 1) return;
#ifdef FIXED
    __threadfence();
#endif
    int sum = 0;
    for (unsigned block = 0; block < gridDim.x; block++) sum += parts[block]; // access
    *total = sum;
}

int main() {
    int *in = new_counted(), *parts = new_zeroed(BLOCKS), *total = new_zeroed(1);
    sum_all<<<BLOCKS, THREADS>>>(in, parts, total);
    bool is_right = read_back(total, 1)[0] == N * (N - 1) / 2;
    CHECK(cudaFree(in));
    CHECK(cudaFree(parts));
    CHECK(cudaFree(total));
    return finish(is_right);
}
