// A block goes back to a pool twice. The pool puts it into its list twice, and later hands it to two owners at a time.
// On a GPU the owners overwrite each other's numbers, long after the error.
// Origin: cub#329.
// kind: double-free
#include "corpus.h"
#include "freehold/check.h"

#include <vector>

static std::vector<int *> free_blocks;

static void release(int *block) {
    freehold_check_freed(&free_blocks, block, NULL); // access // freed
    free_blocks.push_back(block);
}

__global__ void fill(int *block) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    block[i] = i;
}

int main() {
    int *slab = new_zeroed();
    freehold_check_handed_out(&free_blocks, slab, BYTES, NULL);
    fill<<<BLOCKS, THREADS>>>(slab);
    bool is_right = is_linear(read_back(slab), 1, 0);
    release(slab);
#ifndef FIXED
    release(slab);
#endif
    CHECK(cudaFree(slab));
    return finish(is_right && free_blocks.size() == 1);
}
