// A caching pool puts a freed block into its list, and records the block's event afterwards. A thread that allocates in between asks the
// event, which was never recorded and says "done", and takes the block for its own stream.
// On a GPU two streams use one block at a time, if the second thread comes at the wrong moment. Here it always does.
// Origin: cub#156, CachingDeviceAllocator.
// kind: reuse-race
#include "corpus.h"
#include "freehold/check.h"

#include <thread>

__global__ void consume(const int *block, int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = block[i] + 2; // other
}

__global__ void overwrite(int *block) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    block[i] = -1; // access
}

struct Pool {
    int *cached = NULL, *spare;
    cudaEvent_t event;

    int *allocate(cudaStream_t stream) {
        bool is_free = cached != NULL && cudaEventQuery(event) == cudaSuccess;
        int *block = is_free ? cached : spare;
        freehold_check_handed_out(this, block, BYTES, stream);
        return block;
    }
    template <typename Thread> void release(int *block, cudaStream_t stream, Thread other_thread) {
        freehold_check_freed(this, block, stream);
#ifdef FIXED
        CHECK(cudaEventRecord(event, stream));
#endif
        cached = block;
        std::thread(other_thread).join();
#ifndef FIXED
        CHECK(cudaEventRecord(event, stream));
#endif
    }
};

int main() {
    int *slab = new_zeroed(2 * N), *out = new_zeroed();
    cudaStream_t first = new_stream(), second = new_stream();
    Pool pool;
    pool.event = new_event();
    pool.spare = slab + N;
    freehold_check_handed_out(&pool, slab, BYTES, first);
    CHECK(cudaStreamSynchronize(first));
    write_counted(slab);
    hold(first);
    consume<<<BLOCKS, THREADS, 0, first>>>(slab, out);
    int *taken = NULL;
    pool.release(slab, first, [&] {
        taken = pool.allocate(second);
        overwrite<<<BLOCKS, THREADS, 0, second>>>(taken);
    });
    bool is_right = is_linear(read_back(out), 1, 2);
    freehold_check_freed(&pool, taken, second);
    CHECK(cudaEventDestroy(pool.event));
    CHECK(cudaStreamDestroy(first));
    CHECK(cudaStreamDestroy(second));
    CHECK(cudaFree(slab));
    CHECK(cudaFree(out));
    return finish(is_right);
}
