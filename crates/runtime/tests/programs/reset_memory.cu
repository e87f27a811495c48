// Memory after cudaDeviceReset: all of it is free again, and new blocks work, again and again.
#include "show.h"

__global__ void set(int *to, int value) { to[blockIdx.x * blockDim.x + threadIdx.x] = value + blockIdx.x; }

int main() {
    static int back[4096];
    size_t first = 0, before = 0, after = 0, total = 0;
    for (int round = 0; round < 5; round++) {
        CHECK(cudaMemGetInfo(&before, &total));
        if (round == 0) first = before;
        printf("round %d: as much is free as before: %d\n", round, before + (64 << 20) > first);
        int *held = NULL, *freed = NULL, *ordered = NULL, *ordered_freed = NULL;
        cudaStream_t stream;
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        CHECK(cudaMalloc(&held, 128 << 20));
        CHECK(cudaMalloc(&freed, 64 << 20));
        CHECK(cudaMallocAsync(&ordered, 64 << 20, stream));
        CHECK(cudaMallocAsync(&ordered_freed, 64 << 20, stream));
        set<<<16, 256, 0, stream>>>(ordered, 100 * round);
        set<<<16, 256, 0, stream>>>(held, 1000 + round);
        CHECK(cudaMemcpyAsync(back, ordered, sizeof back, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaFreeAsync(ordered_freed, stream));
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaFree(freed));
        CHECK(cudaMemGetInfo(&after, &total));
        printf("%d %d, taken: %d\n", back[0], back[4095], before - after >= (190 << 20));
        CHECK(cudaMemcpy(back, held, sizeof back, cudaMemcpyDeviceToHost));
        printf("%d %d\n", back[0], back[4095]);
        CHECK(cudaFreeAsync(ordered, stream));
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaDeviceReset());
        SHOW(cudaFree(held));
        SHOW(cudaMemcpy(back, held, 4, cudaMemcpyDeviceToHost));
    }
    return 0;
}
