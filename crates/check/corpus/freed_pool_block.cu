// A block is given back to a pool, and a kernel that is submitted later in the same stream still reads it.
// On a GPU the numbers are right until the pool hands the block out again. compute-sanitizer does not see it.
// Origin: use after free behind a caching pool (cuda-oxide#89, cumo#187).
// kind: use-after-free
#include "corpus.h"
#include "freehold/check.h"

static char pool;

__global__ void scale(const int *in, int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[i] * 2; // access
}

int main() {
    int *block = new_zeroed(), *out = new_zeroed();
    cudaStream_t stream = new_stream();
    freehold_check_handed_out(&pool, block, BYTES, stream); // allocated
    CHECK(cudaStreamSynchronize(stream));
    write_counted(block);
#ifndef FIXED
    freehold_check_freed(&pool, block, stream); // freed
#endif
    scale<<<BLOCKS, THREADS, 0, stream>>>(block, out);
#ifdef FIXED
    freehold_check_freed(&pool, block, stream);
#endif
    bool is_right = is_linear(read_back(out), 2, 0);
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(block));
    CHECK(cudaFree(out));
    return finish(is_right);
}
