// A pool keeps its free blocks by stream handle. cudaStreamPerThread is one handle for the streams of all threads, so a block that one
// thread freed is handed to another without a wait.
// On a GPU the second thread overwrites what the first one's kernel still reads.
// Origin: cupy#5069.
// kind: reuse-race
#include "corpus.h"
#include "freehold/check.h"

#include <map>
#include <thread>

#ifdef FIXED
typedef std::thread::id Key;
static Key key() { return std::this_thread::get_id(); }
#else
typedef cudaStream_t Key;
static Key key() { return cudaStreamPerThread; }
#endif

static std::map<Key, int *> free_blocks;
static int *next_block;

static int *allocate() {
    int *&cached = free_blocks[key()];
    int *block = cached;
    cached = NULL;
    if (block == NULL) {
        block = next_block;
        next_block += N;
    }
    freehold_check_handed_out(&free_blocks, block, BYTES, cudaStreamPerThread);
    return block;
}

static void release(int *block) {
    freehold_check_freed(&free_blocks, block, cudaStreamPerThread);
    free_blocks[key()] = block;
}

__global__ void consume(const int *block, int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = block[i] * 3; // other
}

__global__ void overwrite(int *block) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    block[i] = -1; // access
}

int main() {
    int *slab = new_zeroed(2 * N), *out = new_zeroed();
    next_block = slab;
    int *block = allocate();
    CHECK(cudaStreamSynchronize(cudaStreamPerThread));
    write_counted(block);
    hold(cudaStreamPerThread);
    consume<<<BLOCKS, THREADS, 0, cudaStreamPerThread>>>(block, out);
    release(block);
    std::thread([] {
        int *next = allocate();
        overwrite<<<BLOCKS, THREADS, 0, cudaStreamPerThread>>>(next);
        release(next);
    }).join();
    bool is_right = is_linear(read_back(out), 3, 0);
    CHECK(cudaFree(slab));
    CHECK(cudaFree(out));
    return finish(is_right);
}
