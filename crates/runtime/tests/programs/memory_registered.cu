// Memory of the program that is registered with the driver: access by a kernel and by copies, and what is refused.
#include "show.h"

__global__ void square(int *numbers, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) numbers[i] *= numbers[i];
}

int main() {
    const int count = 2048;
    const size_t bytes = count * sizeof(int);
    int *host = (int *)aligned_alloc(4096, bytes);
    for (int i = 0; i < count; i++) host[i] = i;

    CHECK(cudaHostRegister(host, bytes, cudaHostRegisterMapped | cudaHostRegisterPortable));
    SHOW(cudaHostRegister(host, bytes, cudaHostRegisterDefault));
    int *device = NULL;
    CHECK(cudaHostGetDevicePointer(&device, host, 0));
    square<<<(count + 255) / 256, 256>>>(device, count);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    int wrong = 0;
    for (int i = 0; i < count; i++) wrong += host[i] != i * i;
    printf("wrong: %d\n", wrong);

    cudaPointerAttributes attributes;
    CHECK(cudaPointerGetAttributes(&attributes, host + 10));
    printf("type %d, device %d, host address %d\n", attributes.type, attributes.device,
           attributes.hostPointer == host + 10);

    int *block = NULL;
    CHECK(cudaMalloc(&block, bytes));
    CHECK(cudaMemcpyAsync(block, host, bytes, cudaMemcpyHostToDevice, cudaStreamPerThread));
    square<<<(count + 255) / 256, 256, 0, cudaStreamPerThread>>>(block, 64);
    CHECK(cudaMemcpyAsync(host, block, bytes, cudaMemcpyDeviceToHost, cudaStreamPerThread));
    CHECK(cudaDeviceSynchronize());
    printf("[5] = %d, [63] = %d, [64] = %d\n", host[5], host[63], host[64]);

    SHOW(cudaHostUnregister(host));
    SHOW(cudaHostUnregister(host));
    SHOW(cudaHostGetDevicePointer(&device, host, 0));
    CHECK(cudaPointerGetAttributes(&attributes, host));
    printf("type %d\n", attributes.type);
    SHOW(cudaHostRegister(NULL, bytes, 0));
    SHOW(cudaHostRegister(host, 0, 0));
    SHOW(cudaHostRegister(host, bytes, 0x40));
    CHECK(cudaFree(block));
    free(host);
    return 0;
}
