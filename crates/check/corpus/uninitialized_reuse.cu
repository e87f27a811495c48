// A pool hands out a block for the second time. Its new owner reads it before writing: what it finds is the work of the last owner.
// On a GPU the first run after a start is right, and later ones are not.
// Origin: missing initialization that shows only when a pool reuses memory.
// kind: uninitialized-read
#include "corpus.h"
#include "freehold/check.h"

static char pool;

__global__ void fill(int *block) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    block[i] = i;
}

__global__ void add(int *block) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    block[i] += 1; // access
}

int main() {
    int *slab = new_zeroed();
    freehold_check_handed_out(&pool, slab, BYTES, NULL);
    fill<<<BLOCKS, THREADS>>>(slab);
    freehold_check_freed(&pool, slab, NULL);
    freehold_check_handed_out(&pool, slab, BYTES, NULL); // allocated
#ifdef FIXED
    CHECK(cudaMemsetAsync(slab, 0, BYTES, NULL));
#endif
    add<<<BLOCKS, THREADS>>>(slab);
    bool is_right = is_linear(read_back(slab), 0, 1);
    freehold_check_freed(&pool, slab, NULL);
    CHECK(cudaFree(slab));
    return finish(is_right);
}
