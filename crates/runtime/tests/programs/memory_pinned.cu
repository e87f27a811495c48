// Pinned host memory: flags, access by a kernel at the device's address, and release.
#include "show.h"

__global__ void increment(int *numbers, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) numbers[i] += i;
}

static void run(const char *name, int *host) {
    const int count = 1000;
    for (int i = 0; i < count; i++) host[i] = 7;
    int *device = NULL;
    CHECK(cudaHostGetDevicePointer(&device, host, 0));
    increment<<<4, 256>>>(device, count);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    int wrong = 0;
    for (int i = 0; i < count; i++) wrong += host[i] != 7 + i;
    printf("%s: same address %d, wrong %d\n", name, device == host, wrong);
}

int main() {
    int *simple = NULL, *mapped = NULL, *combined = NULL;
    CHECK(cudaMallocHost(&simple, 4096));
    CHECK(cudaHostAlloc(&mapped, 4096, cudaHostAllocMapped | cudaHostAllocPortable));
    CHECK(cudaHostAlloc(&combined, 4096, cudaHostAllocWriteCombined));
    run("simple", simple);
    run("mapped and portable", mapped);
    run("write-combined", combined);

    unsigned flags = 0;
    CHECK(cudaHostGetFlags(&flags, mapped));
    printf("mapped: %d, combined: %d\n", (flags & cudaHostAllocMapped) != 0,
           (flags & cudaHostAllocWriteCombined) != 0);
    CHECK(cudaHostGetFlags(&flags, combined));
    printf("combined: %d\n", (flags & cudaHostAllocWriteCombined) != 0);

    int *empty = (int *)8;
    SHOW(cudaMallocHost(&empty, 0));
    printf("null: %d\n", empty == NULL);
    SHOW(cudaFreeHost(NULL));
    int local = 0, *device = NULL;
    SHOW(cudaHostAlloc(&empty, 64, 0x100));
    SHOW(cudaHostGetDevicePointer(&device, &local, 0));
    SHOW(cudaHostGetDevicePointer(&device, simple, 1));
    SHOW(cudaHostGetFlags(&flags, &local));
    SHOW(cudaFreeHost(&local));
    SHOW(cudaFreeHost(simple + 1));
    SHOW(cudaFree(simple));
    SHOW(cudaFreeHost(simple));
    SHOW(cudaFreeHost(mapped));
    SHOW(cudaFreeHost(combined));
    return 0;
}
