// A pool of RMM, announced by the adaptor: a block is freed in one stream while another one still reads it, and handed out again. With
// -DFIXED the first stream waits for the reader before the free.
#include <cuda_runtime.h>
#include <stdio.h>

#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include "freehold/check_rmm.hpp"

const int COUNT = 1024, THREADS = 256;
const std::size_t BYTES = COUNT * sizeof(int);

__global__ void consume(const int *block, int *sums) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    sums[i] = block[i] + 1; // other
}

__global__ void fill(int *block, int value) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    block[i] = value; // access
}

int main() {
    cudaStream_t producer, consumer;
    cudaEvent_t event;
    cudaStreamCreateWithFlags(&producer, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&consumer, cudaStreamNonBlocking);
    cudaEventCreate(&event);
    int *sums;
    cudaMalloc(&sums, BYTES);
    {
        rmm::mr::cuda_memory_resource cuda;
#if __has_include(<rmm/mr/device_memory_resource.hpp>)
        rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> pool{&cuda, 1 << 20};
        freehold::check_rmm checked{&pool};
#else
        rmm::mr::pool_memory_resource pool{cuda, 1 << 20};
        freehold::check_rmm checked{pool};
#endif
        int *block = static_cast<int *>(checked.allocate(producer, BYTES));
        fill<<<COUNT / THREADS, THREADS, 0, producer>>>(block, 1);
        cudaEventRecord(event, producer);
        cudaStreamWaitEvent(consumer, event, 0);
        consume<<<COUNT / THREADS, THREADS, 0, consumer>>>(block, sums);
#ifdef FIXED
        cudaEventRecord(event, consumer);
        cudaStreamWaitEvent(producer, event, 0);
#endif
        checked.deallocate(producer, block, BYTES);
        int *next = static_cast<int *>(checked.allocate(producer, BYTES));
        fill<<<COUNT / THREADS, THREADS, 0, producer>>>(next, 2);
        checked.deallocate(producer, next, BYTES);
        cudaDeviceSynchronize();
    }
    cudaFree(sums);
    cudaEventDestroy(event);
    cudaStreamDestroy(producer);
    cudaStreamDestroy(consumer);
    puts("done");
}
