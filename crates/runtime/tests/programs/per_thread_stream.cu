// The functions under the names that programs use whose default stream is that of each thread.
#include "show.h"

#include <thread>

extern "C" {
cudaError_t cudaMemcpy_ptds(void *, const void *, size_t, cudaMemcpyKind);
cudaError_t cudaMemcpyAsync_ptsz(void *, const void *, size_t, cudaMemcpyKind, cudaStream_t);
cudaError_t cudaMemset_ptds(void *, int, size_t);
cudaError_t cudaMemset2D_ptds(void *, size_t, int, size_t, size_t);
cudaError_t cudaMemcpy2D_ptds(void *, size_t, const void *, size_t, size_t, size_t, cudaMemcpyKind);
cudaError_t cudaMemcpy3D_ptds(const cudaMemcpy3DParms *);
cudaError_t cudaMemcpyToSymbol_ptds(const void *, const void *, size_t, size_t, cudaMemcpyKind);
cudaError_t cudaMemcpyFromSymbol_ptds(void *, const void *, size_t, size_t, cudaMemcpyKind);
}

__device__ int variable;

__global__ void add(int *numbers, int count, int amount) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) numbers[i] += amount;
}

static int work(int amount) {
    const int count = 3000;
    const size_t bytes = count * sizeof(int);
    static thread_local int host[count];
    int *one = NULL, *two = NULL;
    CHECK(cudaMalloc(&one, bytes));
    CHECK(cudaMalloc(&two, bytes));
    for (int i = 0; i < count; i++) host[i] = i;
    CHECK(cudaMemset_ptds(two, 0, bytes));
    CHECK(cudaMemcpy_ptds(one, host, bytes, cudaMemcpyHostToDevice));
    for (int step = 0; step < 5; step++) add<<<4, 64, 0, cudaStreamPerThread>>>(one, count, amount);
    CHECK(cudaMemcpyAsync_ptsz(two, one, bytes, cudaMemcpyDeviceToDevice, 0));
    CHECK(cudaMemset2D_ptds(two, 400, 0, 4, 10));
    memset(host, 0xff, bytes);
    CHECK(cudaMemcpy2D_ptds(host, 300, two, 300, 300, bytes / 300, cudaMemcpyDeviceToHost));
    int wrong = 0;
    for (int i = 0; i < count; i++) wrong += host[i] != (i % 100 == 0 && i < 1000 ? 0 : i + 5 * amount);
    cudaMemcpy3DParms copy = {0};
    copy.srcPtr = make_cudaPitchedPtr(one, bytes, bytes, 1);
    copy.dstPtr = make_cudaPitchedPtr(host, bytes, bytes, 1);
    copy.extent = make_cudaExtent(bytes, 1, 1);
    copy.kind = cudaMemcpyDeviceToHost;
    CHECK(cudaMemcpy3D_ptds(&copy));
    for (int i = 0; i < count; i++) wrong += host[i] != i + 5 * amount;
    CHECK(cudaFree(one));
    CHECK(cudaFree(two));
    return wrong;
}

int main() {
    int wrong[4] = {-1, -1, -1, -1};
    std::thread threads[4];
    for (int i = 0; i < 4; i++) threads[i] = std::thread([i, &wrong] { wrong[i] = work(i + 1); });
    for (auto &thread : threads) thread.join();
    printf("wrong: %d %d %d %d\n", wrong[0], wrong[1], wrong[2], wrong[3]);
    int value = 77, back = 0;
    CHECK(cudaMemcpyToSymbol_ptds(&variable, &value, sizeof value, 0, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpyFromSymbol_ptds(&back, &variable, sizeof back, 0, cudaMemcpyDeviceToHost));
    printf("variable: %d\n", back);
    return 0;
}
