// A block is allocated for one stream and read in another. The pool is not told of the other stream, so it reuses the block in the first
// stream as soon as it is freed.
// On a GPU the second stream reads the numbers of the next owner, now and then. compute-sanitizer does not see it.
// Origin: missing record_stream: pytorch#18465, pytorch#46603, pytorch#112195.
// kind: reuse-race
#include "corpus.h"
#include "freehold/check.h"

struct Pool {
    int *block;               // The only one.
    cudaEvent_t event;        // When the other streams are done.
    cudaStream_t used = NULL; // The other stream that uses the block, or NULL.

    int *allocate(cudaStream_t stream) {
        CHECK(cudaStreamWaitEvent(stream, event, 0));
        freehold_check_handed_out(this, block, BYTES, stream);
        return block;
    }
    void record_stream(cudaStream_t stream) {
        freehold_check_used(this, block, stream);
        used = stream;
    }
    void release(cudaStream_t stream) {
        freehold_check_freed(this, block, stream);
        if (used != NULL) CHECK(cudaEventRecord(event, used));
        used = NULL;
    }
};

__global__ void consume(const int *block, int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = block[i] + 1; // other
}

__global__ void overwrite(int *block) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    block[i] = -1; // access
}

int main() {
    int *slab = new_zeroed(), *out = new_zeroed();
    cudaStream_t main_stream = new_stream(), side = new_stream();
    Pool pool = {slab, new_event()};
    int *tensor = pool.allocate(main_stream);
    CHECK(cudaStreamSynchronize(main_stream));
    write_counted(tensor);
    hold(side);
    consume<<<BLOCKS, THREADS, 0, side>>>(tensor, out);
#ifdef FIXED
    pool.record_stream(side);
#endif
    pool.release(main_stream);
    int *next = pool.allocate(main_stream);
    overwrite<<<BLOCKS, THREADS, 0, main_stream>>>(next);
    pool.release(main_stream);
    bool is_right = is_linear(read_back(out), 1, 1);
    CHECK(cudaEventDestroy(pool.event));
    CHECK(cudaStreamDestroy(main_stream));
    CHECK(cudaStreamDestroy(side));
    CHECK(cudaFree(slab));
    CHECK(cudaFree(out));
    return finish(is_right);
}
