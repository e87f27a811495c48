// A kernel writes past the end of a block that a pool handed out, into the next block of the same allocation.
// On a GPU the next block has wrong numbers; nothing faults, and compute-sanitizer sees one large allocation.
// Origin: what a sanitizer misses behind any caching pool.
// kind: out-of-bounds
#include "corpus.h"
#include "freehold/check.h"

static char pool;

__global__ void fill(int *block, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) block[i] = -i; // access
}

int main() {
    int *slab = new_zeroed(2 * N), *first = slab, *second = slab + N;
    freehold_check_handed_out(&pool, first, BYTES, NULL);
    freehold_check_handed_out(&pool, second, BYTES, NULL);
    write_counted(second);
#ifdef FIXED
    fill<<<BLOCKS + 1, THREADS>>>(first, N);
#else
    fill<<<BLOCKS + 1, THREADS>>>(first, N + 1);
#endif
    bool is_right = is_linear(read_back(first), -1, 0) && is_linear(read_back(second), 1, 0);
    freehold_check_freed(&pool, first, NULL);
    freehold_check_freed(&pool, second, NULL);
    CHECK(cudaFree(slab));
    return finish(is_right);
}
