// Asynchronous copies: they follow the work before them in their stream.
#include "show.h"

__global__ void scale(float *numbers, int count, float factor) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) numbers[i] *= factor;
}

static void run(const char *name, cudaStream_t stream) {
    const int count = 20000;
    const size_t bytes = count * sizeof(float);
    float *from = NULL, *to = NULL, *one = NULL, *two = NULL;
    CHECK(cudaMallocHost(&from, bytes));
    CHECK(cudaMallocHost(&to, bytes));
    CHECK(cudaMalloc(&one, bytes));
    CHECK(cudaMalloc(&two, bytes));
    for (int i = 0; i < count; i++) from[i] = (float)i;
    CHECK(cudaMemcpyAsync(one, from, bytes, cudaMemcpyHostToDevice, stream));
    scale<<<16, 128, 0, stream>>>(one, count, 3);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpyAsync(two, one, bytes, cudaMemcpyDeviceToDevice, stream));
    scale<<<16, 128, 0, stream>>>(two, count, 0.5f);
    CHECK(cudaMemcpyPeerAsync(one, 0, two, 0, bytes, stream));
    CHECK(cudaMemcpyAsync(to, one, bytes, cudaMemcpyDefault, stream));
    CHECK(cudaDeviceSynchronize());
    int wrong = 0;
    for (int i = 0; i < count; i++) wrong += to[i] != i * 1.5f;
    printf("%s: wrong %d, last %g\n", name, wrong, to[count - 1]);
    SHOW(cudaMemcpyAsync(one, from, 0, cudaMemcpyHostToDevice, stream));
    SHOW(cudaMemcpyAsync(to, from, 64, cudaMemcpyHostToHost, stream));
    CHECK(cudaDeviceSynchronize());
    printf("%g\n", to[15]);
    CHECK(cudaFree(one));
    CHECK(cudaFree(two));
    CHECK(cudaFreeHost(from));
    CHECK(cudaFreeHost(to));
}

int main() {
    run("stream zero", 0);
    run("legacy", cudaStreamLegacy);
    run("per thread", cudaStreamPerThread);

    // Pageable memory: the call has read it when it returns.
    int host[64], *block = NULL;
    CHECK(cudaMalloc(&block, sizeof host));
    for (int i = 0; i < 64; i++) host[i] = i;
    CHECK(cudaMemcpyAsync(block, host, sizeof host, cudaMemcpyHostToDevice, cudaStreamPerThread));
    memset(host, 0, sizeof host);
    CHECK(cudaMemcpyAsync(host, block, sizeof host, cudaMemcpyDeviceToHost, cudaStreamPerThread));
    CHECK(cudaDeviceSynchronize());
    printf("pageable: %d %d\n", host[1], host[63]);
    CHECK(cudaFree(block));
    return 0;
}
