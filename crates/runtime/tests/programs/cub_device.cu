// nvcc: -std=c++17
// cub's functions for a whole device: histogram, selection, run lengths, radix sort, scan, and for blocks and warps.
#include "show.h"

#include <cub/cub.cuh>

template <typename Call>
static void with_storage(Call call) {
    size_t bytes = 0;
    void *storage = NULL;
    CHECK(call(storage, bytes));
    CHECK(cudaMalloc(&storage, bytes));
    CHECK(call(storage, bytes));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFree(storage));
}

template <typename T>
static void show(const char *name, const T *on_device, int count) {
    T *host = (T *)malloc(count * sizeof(T));
    CHECK(cudaMemcpy(host, on_device, count * sizeof(T), cudaMemcpyDeviceToHost));
    printf("%s: %d elements, checksum %016llx\n", name, count, checksum(host, count * sizeof(T)));
    free(host);
}

__global__ void block_sums(const int *values, int *sums, int *prefixes) {
    using Reduce = cub::BlockReduce<int, 128>;
    using Scan = cub::BlockScan<int, 128>;
    using WarpReduce = cub::WarpReduce<int>;
    __shared__ typename Reduce::TempStorage reduce;
    __shared__ typename Scan::TempStorage scan;
    __shared__ typename WarpReduce::TempStorage warps[4];
    int index = blockIdx.x * 128 + threadIdx.x, prefix = 0;
    int sum = Reduce(reduce).Sum(values[index]);
    Scan(scan).ExclusiveSum(values[index], prefix);
    int of_warp = WarpReduce(warps[threadIdx.x / 32]).Sum(values[index]);
    prefixes[index] = prefix;
    if (threadIdx.x == 0) sums[2 * blockIdx.x] = sum;
    if (threadIdx.x == 96) sums[2 * blockIdx.x + 1] = of_warp;
}

struct LessThan {
    int limit;
    __host__ __device__ bool operator()(int value) const { return value < limit; }
};

int main() {
    const int count = 20000;
    static int host[count];
    unsigned state = 99;
    for (int i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        host[i] = (int)(state >> 10) % 1000;
    }
    int *values, *results, *numbers, *found, n = 0;
    CHECK(cudaMalloc(&values, sizeof host));
    CHECK(cudaMalloc(&results, sizeof host));
    CHECK(cudaMalloc(&numbers, sizeof host));
    CHECK(cudaMalloc(&found, sizeof(int)));
    CHECK(cudaMemcpy(values, host, sizeof host, cudaMemcpyHostToDevice));

    with_storage([&](void *storage, size_t &bytes) {
        return cub::DeviceHistogram::HistogramEven(storage, bytes, values, results, 33, 0, 1024, count);
    });
    show("histogram", results, 32);
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DeviceSelect::If(storage, bytes, values, results, found, count, LessThan{250});
    });
    CHECK(cudaMemcpy(&n, found, sizeof n, cudaMemcpyDeviceToHost));
    show("less than 250", results, n);
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DeviceRadixSort::SortPairsDescending(storage, bytes, values, results, values, numbers, count, 2, 10);
    });
    show("sorted by the upper bits", results, count);
    show("with values", numbers, count);
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DeviceRadixSort::SortKeys(storage, bytes, values, results, count);
    });
    show("sorted", results, count);
    int *lengths;
    CHECK(cudaMalloc(&lengths, sizeof host));
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DeviceRunLengthEncode::Encode(storage, bytes, results, numbers, lengths, found, count);
    });
    CHECK(cudaMemcpy(&n, found, sizeof n, cudaMemcpyDeviceToHost));
    show("different values", numbers, n);
    show("how often each", lengths, n);
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DeviceScan::ExclusiveSum(storage, bytes, lengths, numbers, n);
    });
    show("where each begins", numbers, n);
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DeviceReduce::Max(storage, bytes, values, found, count);
    });
    CHECK(cudaMemcpy(&n, found, sizeof n, cudaMemcpyDeviceToHost));
    printf("maximum %d\n", n);
    int offsets[] = {0, 5000, 5000, 12345, count};
    CHECK(cudaMemcpy(lengths, offsets, sizeof offsets, cudaMemcpyHostToDevice));
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DeviceSegmentedReduce::Sum(storage, bytes, values, numbers, 4, lengths, lengths + 1);
    });
    show("sums of segments", numbers, 4);
    block_sums<<<100, 128>>>(values, results, numbers);
    CHECK(cudaGetLastError());
    show("sums of blocks and warps", results, 200);
    show("prefixes in blocks", numbers, 12800);
    return 0;
}
