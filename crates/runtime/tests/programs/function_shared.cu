// Dynamic shared memory: more than 48 KiB only after the kernel was allowed it.
#include "show.h"

__global__ void reverse(int *numbers, int count) {
    extern __shared__ int tile[];
    for (int i = threadIdx.x; i < count; i += blockDim.x) tile[i] = numbers[i];
    __syncthreads();
    for (int i = threadIdx.x; i < count; i += blockDim.x) numbers[i] = tile[count - 1 - i];
}

static cudaError_t launch(int *device, int bytes) {
    reverse<<<1, 256, bytes>>>(device, bytes / 4);
    return cudaGetLastError();
}

int main() {
    const int most = 227 << 10, count = most / 4;
    static int host[count];
    for (int i = 0; i < count; i++) host[i] = i;
    int *device = NULL;
    CHECK(cudaMalloc(&device, most));
    CHECK(cudaMemcpy(device, host, most, cudaMemcpyHostToDevice));

    int optin = 0, normal = 0;
    CHECK(cudaDeviceGetAttribute(&normal, cudaDevAttrMaxSharedMemoryPerBlock, 0));
    CHECK(cudaDeviceGetAttribute(&optin, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
    printf("normal %d, opt-in %d\n", normal, optin);
    SHOW(launch(device, 48 << 10));
    SHOW(launch(device, (48 << 10) + 4));
    SHOW(cudaFuncSetAttribute(reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 << 10));
    cudaFuncAttributes found;
    CHECK(cudaFuncGetAttributes(&found, reverse));
    printf("allowed %d\n", found.maxDynamicSharedSizeBytes);
    SHOW(launch(device, 64 << 10));
    SHOW(launch(device, (64 << 10) + 4));
    SHOW(cudaFuncSetAttribute(reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, most + 1));
    SHOW(cudaFuncSetAttribute(reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, most));
    SHOW(launch(device, most));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(host, device, most, cudaMemcpyDeviceToHost));
    printf("%d %d %d %016llx\n", host[0], host[1], host[count - 1], checksum(host, most));
    CHECK(cudaFree(device));
    return 0;
}
