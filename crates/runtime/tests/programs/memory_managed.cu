// Managed memory: the host and kernels use one address; advice, prefetches and what the driver remembers of them.
#include "show.h"

__global__ void add(int *numbers, int count, int amount) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) numbers[i] += amount;
}

static int attribute(cudaMemRangeAttribute which, const void *start, size_t bytes) {
    int value = -100;
    CHECK(cudaMemRangeGetAttribute(&value, sizeof value, which, start, bytes));
    return value;
}

int main() {
    const int count = 4096;
    const size_t bytes = count * sizeof(int);
    int *numbers = NULL;
    CHECK(cudaMallocManaged(&numbers, bytes));
    for (int i = 0; i < count; i++) numbers[i] = i;
    add<<<8, 128>>>(numbers, count, 5);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    numbers[0] = 100;
    add<<<8, 128>>>(numbers, count, 1);
    CHECK(cudaDeviceSynchronize());
    printf("%d %d %d\n", numbers[0], numbers[1], numbers[count - 1]);

    printf("read mostly %d, preferred %d, prefetched %d\n", attribute(cudaMemRangeAttributeReadMostly, numbers, bytes),
           attribute(cudaMemRangeAttributePreferredLocation, numbers, bytes),
           attribute(cudaMemRangeAttributeLastPrefetchLocation, numbers, bytes));
    cudaMemLocation device = {cudaMemLocationTypeDevice, 0}, host = {cudaMemLocationTypeHost, 0};
    CHECK(cudaMemAdvise(numbers, bytes, cudaMemAdviseSetReadMostly, device));
    CHECK(cudaMemAdvise(numbers, bytes, cudaMemAdviseSetPreferredLocation, device));
    CHECK(cudaMemAdvise(numbers, bytes, cudaMemAdviseSetAccessedBy, host));
    CHECK(cudaMemPrefetchAsync(numbers, bytes, device, 0, 0));
    CHECK(cudaDeviceSynchronize());
    printf("read mostly %d, preferred %d, prefetched %d\n", attribute(cudaMemRangeAttributeReadMostly, numbers, bytes),
           attribute(cudaMemRangeAttributePreferredLocation, numbers, bytes),
           attribute(cudaMemRangeAttributeLastPrefetchLocation, numbers, bytes));
    int readers[2] = {9, 9}, location = 0;
    void *places[2] = {readers, &location};
    size_t sizes[2] = {sizeof readers, sizeof location};
    cudaMemRangeAttribute which[2] = {cudaMemRangeAttributeAccessedBy, cudaMemRangeAttributePreferredLocationType};
    CHECK(cudaMemRangeGetAttributes(places, sizes, which, 2, numbers, bytes));
    printf("accessed by %d %d, preferred type %d\n", readers[0], readers[1], location);
    CHECK(cudaMemPrefetchAsync(numbers, bytes, host, 0, cudaStreamPerThread));
    CHECK(cudaDeviceSynchronize());
    printf("prefetched %d, still %d\n", attribute(cudaMemRangeAttributeLastPrefetchLocation, numbers, bytes), numbers[1]);
    CHECK(cudaMemAdvise(numbers, bytes, cudaMemAdviseUnsetReadMostly, device));
    CHECK(cudaMemAdvise(numbers, bytes, cudaMemAdviseUnsetPreferredLocation, device));
    CHECK(cudaMemAdvise(numbers, bytes, cudaMemAdviseUnsetAccessedBy, host));
    printf("read mostly %d, preferred %d\n", attribute(cudaMemRangeAttributeReadMostly, numbers, bytes),
           attribute(cudaMemRangeAttributePreferredLocation, numbers, bytes));

    void *parts[2] = {numbers, numbers + 1024};
    size_t part_sizes[2] = {4096, 8192}, firsts[2] = {0, 1};
    cudaMemLocation locations[2] = {device, host};
    CHECK(cudaMemPrefetchBatchAsync(parts, part_sizes, 2, locations, firsts, 2, 0, cudaStreamPerThread));
    CHECK(cudaDeviceSynchronize());
    printf("prefetched %d and %d\n", attribute(cudaMemRangeAttributeLastPrefetchLocation, numbers, 4096),
           attribute(cudaMemRangeAttributeLastPrefetchLocation, numbers + 1024, 8192));

    SHOW(cudaStreamAttachMemAsync(cudaStreamPerThread, numbers, 0, cudaMemAttachGlobal));
    SHOW(cudaMemAdvise(numbers, bytes, (cudaMemoryAdvise)99, device));
    cudaMemLocation nowhere = {cudaMemLocationTypeDevice, 77};
    SHOW(cudaMemPrefetchAsync(numbers, bytes, nowhere, 0, 0));
    int *block = NULL;
    CHECK(cudaMalloc(&block, bytes));
    SHOW(cudaMemAdvise(block, bytes, cudaMemAdviseSetReadMostly, device));
    SHOW(cudaMemPrefetchAsync(block, bytes, device, 0, 0));
    SHOW(cudaMallocManaged(&block, 0));
    SHOW(cudaMallocManaged(&block, 64, 77));
    SHOW(cudaFree(numbers));
    return 0;
}
