// A block is freed in its stream while a copy to the host in a side stream still reads it. The pool hands the block to the next
// caller of the same stream.
// On a GPU the host gets some numbers of the next owner. It depends on how long the copy takes.
// Origin: torchrec#4231 (resize_(0) under a copy), vLLM#41834.
// kind: reuse-race
#include "corpus.h"
#include "freehold/check.h"

static char pool;

__global__ void overwrite(int *block) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    block[i] = -1; // access
}

int main() {
    int *block = new_zeroed(), *result = new_pinned();
    cudaStream_t stream = new_stream(), side = new_stream();
    cudaEvent_t copied = new_event();
    freehold_check_handed_out(&pool, block, BYTES, stream);
    CHECK(cudaStreamSynchronize(stream));
    write_counted(block);
    hold(side);
    CHECK(cudaMemcpyAsync(result, block, BYTES, cudaMemcpyDeviceToHost, side)); // other
    CHECK(cudaEventRecord(copied, side));
#ifdef FIXED
    CHECK(cudaStreamWaitEvent(stream, copied, 0));
#endif
    freehold_check_freed(&pool, block, stream);
    freehold_check_handed_out(&pool, block, BYTES, stream);
    overwrite<<<BLOCKS, THREADS, 0, stream>>>(block);
    freehold_check_freed(&pool, block, stream);
    wait_for_device();
    bool is_right = is_linear(result, 1, 0);
    CHECK(cudaEventDestroy(copied));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaStreamDestroy(side));
    CHECK(cudaFree(block));
    CHECK(cudaFreeHost(result));
    return finish(is_right);
}
