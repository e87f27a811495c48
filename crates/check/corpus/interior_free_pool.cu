// A slice of a pool's block is given back instead of the block: an address inside it.
// On a GPU a pool that does not check cuts the block in two, and hands out memory that is in use.
// Origin: cumo#173.
// kind: interior-free
#include "corpus.h"
#include "freehold/check.h"

static char pool;

__global__ void fill(int *block) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    block[i] = i;
}

int main() {
    int *slab = new_zeroed();
    freehold_check_handed_out(&pool, slab, BYTES, NULL); // allocated
    fill<<<BLOCKS, THREADS>>>(slab);
    bool is_right = is_linear(read_back(slab), 1, 0);
#ifndef FIXED
    freehold_check_freed(&pool, slab + 16, NULL); // access
#endif
    freehold_check_freed(&pool, slab, NULL);
    CHECK(cudaFree(slab));
    return finish(is_right);
}
