// A pool keeps a free list and an event for each stream. When it moves a block from one stream's list to another's, it lets the new
// stream wait, but does not record that stream's event again: a stream that takes the block later waits for an old
// event, which orders nothing.
// On a GPU the third stream overwrites a block that the first one still reads. compute-sanitizer does not see it.
// Origin: rmm#2489, found in production with 8 threads and 8 streams.
// kind: reuse-race
#include "corpus.h"
#include "freehold/check.h"

struct List {
    cudaStream_t stream;
    cudaEvent_t event; // Recorded in `stream` by each free.
    int *block;
};

static char pool;

static void release(List &list, int *block) {
    freehold_check_freed(&pool, block, list.stream);
    CHECK(cudaEventRecord(list.event, list.stream));
    list.block = block;
}

static void merge(List &into, List &from) {
    CHECK(cudaStreamWaitEvent(into.stream, from.event, 0));
#ifdef FIXED
    CHECK(cudaEventRecord(into.event, into.stream));
#endif
    into.block = from.block;
    from.block = NULL;
}

static int *steal(List &from, cudaStream_t stream) {
    CHECK(cudaStreamWaitEvent(stream, from.event, 0));
    freehold_check_handed_out(&pool, from.block, BYTES, stream);
    return from.block;
}

__global__ void consume(const int *block, int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = block[i] * 2; // other
}

__global__ void overwrite(int *block) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    block[i] = -1; // access
}

int main() {
    int *slab = new_zeroed(), *out = new_zeroed();
    List lists[3];
    for (List &list : lists) list = {new_stream(), new_event(), NULL};
    freehold_check_handed_out(&pool, slab, BYTES, lists[0].stream);
    CHECK(cudaStreamSynchronize(lists[0].stream));
    write_counted(slab);
    hold(lists[0].stream);
    consume<<<BLOCKS, THREADS, 0, lists[0].stream>>>(slab, out);
    release(lists[0], slab);
    merge(lists[1], lists[0]);
    int *stolen = steal(lists[1], lists[2].stream);
    overwrite<<<BLOCKS, THREADS, 0, lists[2].stream>>>(stolen);
    release(lists[2], stolen);
    bool is_right = is_linear(read_back(out), 2, 0);
    for (List &list : lists) {
        CHECK(cudaEventDestroy(list.event));
        CHECK(cudaStreamDestroy(list.stream));
    }
    CHECK(cudaFree(slab));
    CHECK(cudaFree(out));
    return finish(is_right);
}
