// nvcc: --extended-lambda -std=c++17
// Sums, scans and searches with thrust.
#include "show.h"

#include <thrust/count.h>
#include <thrust/device_vector.h>
#include <thrust/extrema.h>
#include <thrust/gather.h>
#include <thrust/host_vector.h>
#include <thrust/inner_product.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#include <thrust/partition.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sequence.h>
#include <thrust/transform.h>
#include <thrust/transform_reduce.h>

struct Square {
    __host__ __device__ long long operator()(long long value) const { return value * value; }
};

struct IsOdd {
    __host__ __device__ bool operator()(int value) const { return value % 2 != 0; }
};

struct Remainder {
    __host__ __device__ int operator()(int index) const { return index * 7919 % 997; }
};

template <typename T>
static void show(const char *name, const thrust::device_vector<T> &values) {
    thrust::host_vector<T> host = values;
    printf("%s: %zu elements, checksum %016llx\n", name, host.size(), checksum(host.data(), host.size() * sizeof(T)));
}

int main() {
    const int count = 10007;
    auto indices = thrust::make_counting_iterator(0);
    auto remainders = thrust::make_transform_iterator(indices, Remainder());
    thrust::device_vector<int> values(remainders, remainders + count);
    printf("sum %d, maximum of nothing and 5: %d\n", thrust::reduce(values.begin(), values.end()),
           thrust::reduce(values.begin(), values.begin(), 5, thrust::maximum<int>()));
    printf("squares %lld\n", thrust::transform_reduce(values.begin(), values.end(), Square(), 0ll, thrust::plus<long long>()));
    // Halves of small integers: every partial sum is exact.
    thrust::device_vector<double> halves(count);
    thrust::transform(values.begin(), values.end(), halves.begin(), [] __host__ __device__(int value) { return value * 0.5; });
    printf("halves %.1f, product with indices %.1f\n", thrust::reduce(halves.begin(), halves.end()),
           thrust::inner_product(halves.begin(), halves.end(), indices, 0.0));
    printf("odd %d, 0 is there %d times\n", (int)thrust::count_if(values.begin(), values.end(), IsOdd()),
           (int)thrust::count(values.begin(), values.end(), 0));
    auto ends = thrust::minmax_element(values.begin(), values.end());
    printf("smallest at %d, largest at %d\n", (int)(ends.first - values.begin()), (int)(ends.second - values.begin()));

    thrust::device_vector<int> scanned(count);
    thrust::inclusive_scan(values.begin(), values.end(), scanned.begin());
    show("inclusive scan", scanned);
    thrust::exclusive_scan(values.begin(), values.end(), scanned.begin(), 100);
    show("exclusive scan", scanned);
    thrust::inclusive_scan(values.begin(), values.end(), scanned.begin(), thrust::maximum<int>());
    show("running maximum", scanned);

    thrust::device_vector<int> keys(count), found_keys(count), sums(count);
    thrust::transform(indices, indices + count, keys.begin(), [] __host__ __device__(int index) { return index / 37; });
    auto found = thrust::reduce_by_key(keys.begin(), keys.end(), values.begin(), found_keys.begin(), sums.begin());
    found_keys.resize(found.first - found_keys.begin());
    sums.resize(found.second - sums.begin());
    show("keys", found_keys);
    show("sums by key", sums);
    thrust::exclusive_scan_by_key(keys.begin(), keys.end(), values.begin(), scanned.begin());
    show("scan by key", scanned);

    auto middle = thrust::stable_partition(values.begin(), values.end(), IsOdd());
    printf("%d odd ones first\n", (int)(middle - values.begin()));
    show("parted", values);
    thrust::device_vector<int> gathered(count);
    thrust::gather(remainders, remainders + count, values.begin(), gathered.begin());
    show("gathered", gathered);
    return 0;
}
