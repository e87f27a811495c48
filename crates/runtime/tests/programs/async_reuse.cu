// Blocks of cudaMallocAsync and cudaMalloc in several streams, freed in any of them by either function while kernels that use
// them are held. A block that is reused too early is overwritten before it is checked.
#include "show.h"

#include <vector>

const int STREAMS = 4, GATES = 16;

// Writes a value, waits at a gate, and counts the words that have changed.
__global__ void hold(volatile int *gate, int *block, int words, int value, int *errors) {
    for (int i = threadIdx.x; i < words; i += blockDim.x) block[i] = value;
    __syncthreads();
    while (*gate == 0) {
    }
    for (int i = threadIdx.x; i < words; i += blockDim.x)
        if (block[i] != value) atomicAdd(errors, 1);
}

static unsigned long long state = 88172645463325252ull;

static unsigned below(unsigned count) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)((state >> 32) % count);
}

struct Block {
    int *start;
    int words;
    int home;
};

int main() {
    int *gates, *errors;
    CHECK(cudaMallocHost(&gates, GATES * sizeof *gates));
    CHECK(cudaMallocHost(&errors, sizeof *errors));
    *errors = 0;
    cudaStream_t streams[STREAMS];
    cudaEvent_t done;
    CHECK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
    for (cudaStream_t &stream : streams) CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    int value = 0;
    for (int round = 0; round < 24; round++) {
        memset(gates, 0, GATES * sizeof *gates);
        std::vector<Block> blocks;
        int closed = 0;
        for (int step = 0; step < 48; step++) {
            int stream = below(STREAMS);
            if (blocks.empty() || below(3) != 0) {
                Block block = {NULL, 64 << below(13), stream};
                // It may wait for all kernels, held ones too.
                if (closed == 0 && below(2) == 0) {
                    CHECK(cudaMalloc(&block.start, block.words * sizeof(int)));
                } else {
                    CHECK(cudaMallocAsync(&block.start, block.words * sizeof(int), streams[stream]));
                }
                // Some of the kernels end at once: an open gate.
                int gate = closed < GATES - 1 && below(4) == 0 ? closed++ : GATES - 1;
                gates[GATES - 1] = 1;
                hold<<<1, 32, 0, streams[stream]>>>(gates + gate, block.start, block.words, ++value, errors);
                CHECK(cudaGetLastError());
                blocks.push_back(block);
                continue;
            }
            size_t index = below((unsigned)blocks.size());
            Block block = blocks[index];
            blocks.erase(blocks.begin() + index);
            int to = below(3) == 0 ? stream : block.home;
            if (to != block.home) {
                CHECK(cudaEventRecord(done, streams[block.home]));
                CHECK(cudaStreamWaitEvent(streams[to], done, 0));
                hold<<<1, 32, 0, streams[to]>>>(gates + GATES - 1, block.start, block.words, ++value, errors);
            }
            CHECK(cudaFreeAsync(block.start, streams[to]));
            if (below(16) == 0) {
                // A stream may be destroyed while its kernels are held.
                int old = below(STREAMS);
                bool is_home = false;
                for (Block &live : blocks) is_home |= live.home == old;
                if (!is_home) {
                    CHECK(cudaStreamDestroy(streams[old]));
                    CHECK(cudaStreamCreateWithFlags(&streams[old], cudaStreamNonBlocking));
                }
            }
        }
        // In an order of their own.
        for (int i = 0; i < GATES; i++) ((volatile int *)gates)[i * 5 % GATES] = 1;
        CHECK(cudaDeviceSynchronize());
        for (Block &block : blocks) {
            if (below(2) == 0) {
                CHECK(cudaFree(block.start));
            } else {
                CHECK(cudaFreeAsync(block.start, streams[below(STREAMS)]));
            }
        }
    }
    CHECK(cudaDeviceSynchronize());
    printf("%d kernels, %d words changed\n", value, *errors);
    size_t before, after, total;
    int *block;
    CHECK(cudaMemGetInfo(&before, &total));
    CHECK(cudaMallocAsync(&block, 64 << 20, streams[0]));
    CHECK(cudaStreamSynchronize(streams[0]));
    CHECK(cudaMemGetInfo(&after, &total));
    printf("taken: %d\n", before - after >= (63 << 20) && before - after <= (96 << 20));
    CHECK(cudaFreeAsync(block, streams[0]));
    for (cudaStream_t stream : streams) CHECK(cudaStreamDestroy(stream));
    return 0;
}
