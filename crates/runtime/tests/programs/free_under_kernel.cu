// Blocks freed while kernels use them. With deferred frees, cudaFree returns although the kernel cannot end, and the memory is not
// reused before it has. NVIDIA's cudaFree waits for the kernel, which is therefore let go first.
#include "show.h"

#include <stdlib.h>

__global__ void hold(volatile int *gate, int *block, int words, int value, int *errors) {
    for (int i = threadIdx.x; i < words; i += blockDim.x) block[i] = value;
    __syncthreads();
    while (*gate == 0) {
    }
    for (int i = threadIdx.x; i < words; i += blockDim.x)
        if (block[i] != value) atomicAdd(errors, 1);
}

int main() {
    const char *mode = getenv("FREEHOLD_CUDAFREE");
    bool waits = mode == NULL || strcmp(mode, "deferred") != 0;
    int *gate, *errors, *block, *next;
    CHECK(cudaMallocHost(&gate, sizeof *gate));
    CHECK(cudaMallocHost(&errors, sizeof *errors));
    *gate = *errors = 0;
    CHECK(cudaMalloc(&block, 1 << 16));
    hold<<<1, 32>>>(gate, block, 1 << 14, 1, errors);
    if (waits) *(volatile int *)gate = 1;
    CHECK(cudaFree(block));
    SHOW(cudaFree(block));
    CHECK(cudaMalloc(&next, 1 << 16));
    printf("not reused: %d\n", waits || next != block);
    *(volatile int *)gate = 1;
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFree(next));
    printf("errors: %d\n", *errors);

    cudaStream_t streams[3];
    for (cudaStream_t &stream : streams) CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int i = 0; i < 300; i++) {
        int words = 64 << (i * 7 % 5);
        CHECK(cudaMalloc(&block, words * sizeof *block));
        hold<<<1, 32, 0, streams[i * 5 % 3]>>>(gate, block, words, i, errors);
        CHECK(cudaFree(block));
    }
    CHECK(cudaDeviceSynchronize());
    printf("errors: %d\n", *errors);
    size_t before, after, total;
    CHECK(cudaMemGetInfo(&before, &total));
    CHECK(cudaMalloc(&block, 32 << 20));
    CHECK(cudaMemGetInfo(&after, &total));
    printf("taken: %d\n", before - after >= (32 << 20) && before - after < (64 << 20));
    CHECK(cudaFree(block));
    for (cudaStream_t stream : streams) CHECK(cudaStreamDestroy(stream));
    return 0;
}
