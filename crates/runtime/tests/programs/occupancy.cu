// How many blocks of a kernel fit on a multiprocessor.
#include "show.h"

__global__ void plain(int *out) { out[blockIdx.x * blockDim.x + threadIdx.x] = threadIdx.x; }

__global__ void __launch_bounds__(256) bounded(int *out) { out[threadIdx.x] = 1; }

__global__ void tile(int *out) {
    __shared__ int numbers[8192];
    numbers[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = numbers[blockDim.x - 1 - threadIdx.x];
}

static size_t shared_of(int threads) { return (size_t)threads * 64; }

int main() {
    int blocks = 0;
    int sizes[] = {1, 32, 33, 64, 96, 256, 512, 1000, 1024};
    for (int size : sizes) {
        CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, plain, size, 0));
        printf("%d threads: %d blocks\n", size, blocks);
    }
    size_t shared[] = {1 << 10, 16 << 10, 40 << 10, 48 << 10};
    for (size_t bytes : shared) {
        CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, plain, 128, bytes));
        printf("%zu bytes: %d blocks\n", bytes, blocks);
    }
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, tile, 128, 0));
    printf("static shared memory: %d blocks\n", blocks);
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, plain, 256, 0, cudaOccupancyDisableCachingOverride));
    printf("with flags: %d blocks\n", blocks);
    SHOW(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, plain, 0, 0));
    SHOW(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, plain, 256, 0, 8));
    int local;
    SHOW(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, (const void *)&local, 256, 0));

    size_t available = 0;
    CHECK(cudaOccupancyAvailableDynamicSMemPerBlock(&available, plain, 8, 128));
    printf("available for each of 8 blocks: %zu\n", available);
    CHECK(cudaOccupancyAvailableDynamicSMemPerBlock(&available, tile, 2, 128));
    printf("available beside static shared memory: %zu\n", available);

    int grid = 0, block = 0;
    CHECK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, plain));
    printf("best: %d blocks of %d\n", grid, block);
    CHECK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, bounded));
    printf("bounded: %d blocks of %d\n", grid, block);
    CHECK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, plain, 0, 100));
    printf("at most 100 threads: %d blocks of %d\n", grid, block);
    CHECK(cudaOccupancyMaxPotentialBlockSizeVariableSMem(&grid, &block, plain, shared_of));
    printf("64 bytes for each thread: %d blocks of %d\n", grid, block);
    return 0;
}
