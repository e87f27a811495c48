// What the programs of the corpus share. In the corrected version (-DFIXED) an error of a call, or a wrong result, ends the program
// with status 1. In the broken version both are printed, and the status is 0.
#pragma once

// Not <vector>, <thread> or <atomic>: with them nvcc needs three times as long, and there are many programs.
#include <cuda_runtime.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

const int N = 1024;
const int THREADS = 256;
const int BLOCKS = N / THREADS;
const size_t BYTES = N * sizeof(int);

#ifdef FIXED
const bool IS_FIXED = true;
#else
const bool IS_FIXED = false;
#endif

static inline void report_error(int line, const char *call, const char *error) {
    fprintf(stderr, "line %d: %s: %s\n", line, call, error);
    if (IS_FIXED) exit(1);
}

#define CHECK(...)                                                                              \
    do {                                                                                        \
        cudaError_t error_ = (__VA_ARGS__);                                                     \
        if (error_ != cudaSuccess) report_error(__LINE__, #__VA_ARGS__, cudaGetErrorName(error_)); \
    } while (0)

// A stream that the legacy default stream does not wait for.
static inline cudaStream_t new_stream() {
    cudaStream_t stream = NULL;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

static inline cudaEvent_t new_event() {
    cudaEvent_t event = NULL;
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    return event;
}

static int are_held_streams_released = 0;

static inline void wait_for_release(void *) {
    while (!__atomic_load_n(&are_held_streams_released, __ATOMIC_ACQUIRE)) sched_yield();
}

// Where a program of the corpus would have a busy stream. It does nothing, unless the environment has CORPUS_HOLD: then what is submitted
// next to the stream starts in `wait_for_device` at the earliest, so that broken programs have wrong results.
static inline void hold(cudaStream_t stream) {
    if (getenv("CORPUS_HOLD") != NULL) CHECK(cudaLaunchHostFunc(stream, wait_for_release, NULL));
}

// Waits for all work of the device.
static inline void wait_for_device() {
    __atomic_store_n(&are_held_streams_released, 1, __ATOMIC_RELEASE);
    CHECK(cudaDeviceSynchronize());
}

// Numbers in memory of the host, which are freed with this.
struct Numbers {
    int *values;
    int count;

    explicit Numbers(int count) : values((int *)calloc(count, sizeof(int))), count(count) {}
    Numbers(Numbers &&other) : values(other.values), count(other.count) { other.values = NULL; }
    ~Numbers() { free(values); }
    int &operator[](int i) const { return values[i]; }
};

// Page-locked memory with the numbers 0, 1, 2, ...
static inline int *new_pinned(int count = N) {
    int *numbers = NULL;
    CHECK(cudaMallocHost(&numbers, count * sizeof(int)));
    for (int i = 0; i < count; i++) numbers[i] = i;
    return numbers;
}

// A launch that loads the program's kernels: loading them later would wait for all work of the device, and hide missing waits.
static __global__ void load_kernels() {}

// Device memory with zeros. No work is pending when it returns.
static inline int *new_zeroed(int count = N) {
    int *numbers = NULL;
    load_kernels<<<1, 1>>>();
    CHECK(cudaMalloc(&numbers, count * sizeof(int)));
    CHECK(cudaMemset(numbers, 0, count * sizeof(int)));
    CHECK(cudaDeviceSynchronize());
    return numbers;
}

// Writes the numbers 0, 1, 2, ... to device memory. No work is pending when it returns.
static inline void write_counted(int *numbers, int count = N) {
    Numbers counted(count);
    for (int i = 0; i < count; i++) counted[i] = i;
    CHECK(cudaMemcpy(numbers, counted.values, count * sizeof(int), cudaMemcpyHostToDevice));
    CHECK(cudaDeviceSynchronize());
}

// Device memory with the numbers 0, 1, 2, ... No work is pending when it returns.
static inline int *new_counted(int count = N) {
    int *numbers = new_zeroed(count);
    write_counted(numbers, count);
    return numbers;
}

// Waits for the device, and copies device memory to the host.
static inline Numbers read_back(const int *numbers, int count = N) {
    Numbers copy(count);
    wait_for_device();
    CHECK(cudaMemcpy(copy.values, numbers, count * sizeof(int), cudaMemcpyDeviceToHost));
    return copy;
}

// Whether values[i] == factor * i + offset for all i.
static inline bool is_linear(const int *values, int factor, int offset, int count = N) {
    for (int i = 0; i < count; i++)
        if (values[i] != factor * i + offset) return false;
    return true;
}

static inline bool is_linear(const Numbers &numbers, int factor, int offset) {
    return is_linear(numbers.values, factor, offset, numbers.count);
}

// Prints whether the result is right, and returns the status of the program.
static inline int finish(bool is_right) {
    printf("%s\n", is_right ? "right" : "wrong");
    return is_right || !IS_FIXED ? 0 : 1;
}
