// nvcc: -std=c++17
// Sorting with thrust: plain, stable, by key, and what needs sorted input.
#include "show.h"

#include <thrust/binary_search.h>
#include <thrust/copy.h>
#include <thrust/device_vector.h>
#include <thrust/functional.h>
#include <thrust/host_vector.h>
#include <thrust/merge.h>
#include <thrust/sequence.h>
#include <thrust/set_operations.h>
#include <thrust/sort.h>
#include <thrust/unique.h>

template <typename T>
static thrust::host_vector<T> numbers(int count, unsigned modulus) {
    thrust::host_vector<T> numbers(count);
    unsigned state = 12345;
    for (int i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        numbers[i] = (T)((int)(state >> 8) % (int)modulus) - (T)(modulus / 3);
    }
    return numbers;
}

template <typename T>
static void show(const char *name, const thrust::device_vector<T> &values) {
    thrust::host_vector<T> host = values;
    printf("%s: %zu elements, checksum %016llx\n", name, host.size(), checksum(host.data(), host.size() * sizeof(T)));
}

template <typename T>
static void sort_all(const char *name, int count) {
    printf("%s\n", name);
    thrust::device_vector<T> values = numbers<T>(count, 100000);
    thrust::sort(values.begin(), values.end());
    show("  ascending", values);
    thrust::sort(values.begin(), values.end(), thrust::greater<T>());
    show("  descending", values);
    thrust::device_vector<T> keys = numbers<T>(count, 50);
    thrust::device_vector<int> order(count);
    thrust::sequence(order.begin(), order.end());
    thrust::stable_sort_by_key(keys.begin(), keys.end(), order.begin());
    show("  keys", keys);
    show("  order", order);
    keys.erase(thrust::unique(keys.begin(), keys.end()), keys.end());
    show("  unique", keys);
    thrust::device_vector<int> places(count);
    thrust::device_vector<T> wanted = numbers<T>(count, 50);
    thrust::lower_bound(keys.begin(), keys.end(), wanted.begin(), wanted.end(), places.begin());
    show("  places", places);
}

struct Pair {
    short first;
    unsigned second;
};

struct ByFirst {
    __host__ __device__ bool operator()(const Pair &a, const Pair &b) const { return a.first < b.first; }
};

int main() {
    sort_all<int>("int", 5000);
    sort_all<short>("short", 3000);
    sort_all<long long>("long long", 4000);
    sort_all<float>("float", 5000);
    sort_all<double>("double", 2500);

    thrust::host_vector<Pair> pairs(3000);
    for (int i = 0; i < 3000; i++) {
        memset(&pairs[i], 0, sizeof(Pair));
        pairs[i].first = (short)(i * 7919 % 61);
        pairs[i].second = (unsigned)i;
    }
    thrust::device_vector<Pair> on_device = pairs;
    thrust::stable_sort(on_device.begin(), on_device.end(), ByFirst());
    thrust::host_vector<Pair> sorted = on_device;
    int wrong = 0;
    for (int i = 1; i < 3000; i++) {
        bool in_order = sorted[i - 1].first < sorted[i].first ||
                        (sorted[i - 1].first == sorted[i].first && sorted[i - 1].second < sorted[i].second);
        wrong += !in_order;
    }
    printf("pairs: %d %u to %d %u, out of order %d\n", sorted[0].first, sorted[0].second, sorted[2999].first,
           sorted[2999].second, wrong);

    thrust::device_vector<int> even(500), thirds(400), merged(900), common(500);
    thrust::sequence(even.begin(), even.end(), 0, 2);
    thrust::sequence(thirds.begin(), thirds.end(), 0, 3);
    thrust::merge(even.begin(), even.end(), thirds.begin(), thirds.end(), merged.begin());
    show("merged", merged);
    auto end = thrust::set_intersection(even.begin(), even.end(), thirds.begin(), thirds.end(), common.begin());
    common.resize(end - common.begin());
    show("in both", common);
    return 0;
}
