// What cudaMalloc, cudaFree, cudaMallocAsync, cudaFreeAsync and launches cost, and whether a block is reused while a kernel still
// writes to it.
//
//     nvcc -O2 -arch=native -cudart shared frees.cu -o frees
//     ./frees; freehold run --device cuda -- ./frees; freehold run --device cuda --strict -- ./frees
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                                                             \
    do {                                                                                                        \
        cudaError_t error_ = (call);                                                                            \
        if (error_ != cudaSuccess) {                                                                            \
            printf("%s: %s\n", #call, cudaGetErrorName(error_));                                                \
            exit(1);                                                                                            \
        }                                                                                                       \
    } while (0)

typedef std::chrono::steady_clock Clock;

static double us(Clock::time_point from) {
    return std::chrono::duration<double, std::micro>(Clock::now() - from).count();
}

// What reading the clock twice takes, which is subtracted.
static double clock_us() {
    Clock::time_point begin = Clock::now();
    double sum = 0;
    for (int i = 0; i < 100000; ++i) sum += us(Clock::now());
    return us(begin) / 100000 / 2 + sum * 0;
}

__global__ void nothing(int *block) {}

__global__ void spin(long long nanoseconds) {
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    } while (now - begin < (unsigned long long)nanoseconds);
}

// Writes a value, and after a while checks that it is still there.
__global__ void hold(int *block, int words, int value, int *errors) {
    for (int i = threadIdx.x; i < words; i += blockDim.x) block[i] = value;
    __syncthreads();
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    } while (now - begin < 20000);
    for (int i = threadIdx.x; i < words; i += blockDim.x)
        if (block[i] != value) atomicAdd(errors, 1);
}

static void pairs(const char *name, size_t bytes, int count, int launches_each) {
    double total = -2 * clock_us() * count, longest_free = 0;
    std::vector<double> each;
    for (int i = 0; i < count; ++i) {
        int *block = NULL;
        Clock::time_point begin = Clock::now();
        CHECK(cudaMalloc(&block, bytes));
        double alloc_us = us(begin);
        for (int l = 0; l < launches_each; ++l) nothing<<<1, 1>>>(block);
        begin = Clock::now();
        CHECK(cudaFree(block));
        double free_us = us(begin);
        total += alloc_us + free_us;
        each.push_back(alloc_us + free_us);
        longest_free = std::max(longest_free, free_us);
    }
    CHECK(cudaDeviceSynchronize());
    std::sort(each.begin(), each.end());
    printf("%-44s %10.0f ns a pair (mean), %.0f ns (median), %.0f ns (99 %%), longest free %.0f ns\n", name,
           total * 1000 / count, each[count / 2] * 1000, each[count * 99ull / 100] * 1000, longest_free * 1000);
}

// The pair of stream-ordered functions. The free may be in another stream than the allocation, after an event.
static void pairs_in(const char *name, size_t bytes, int count, cudaStream_t from, cudaStream_t to) {
    double total = -2 * clock_us() * count;
    std::vector<double> each;
    cudaEvent_t done;
    CHECK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
    for (int i = 0; i < count; ++i) {
        int *block = NULL;
        Clock::time_point begin = Clock::now();
        CHECK(cudaMallocAsync(&block, bytes, from));
        double alloc_us = us(begin);
        nothing<<<1, 1, 0, from>>>(block);
        if (from != to) {
            CHECK(cudaEventRecord(done, from));
            CHECK(cudaStreamWaitEvent(to, done, 0));
        }
        begin = Clock::now();
        CHECK(cudaFreeAsync(block, to));
        double free_us = us(begin);
        total += alloc_us + free_us;
        each.push_back(alloc_us + free_us);
    }
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaEventDestroy(done));
    std::sort(each.begin(), each.end());
    printf("%-44s %10.0f ns a pair (mean), %.0f ns (median), %.0f ns (99 %%)\n", name, total * 1000 / count,
           each[count / 2] * 1000, each[count * 99ull / 100] * 1000);
}

static void stream_ordered(int count) {
    cudaStream_t first, second;
    CHECK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    pairs_in("async, 256 B", 256, count, first, first);
    pairs_in("async, 64 KiB", 64 << 10, count, first, first);
    pairs_in("async, 1 MiB", 1 << 20, count, first, first);
    pairs_in("async, 16 MiB", 16 << 20, count / 10, first, first);
    pairs_in("async, 1 MiB, default stream", 1 << 20, count, 0, 0);
    pairs_in("async, 1 MiB, freed in another stream", 1 << 20, count / 10, first, second);
    CHECK(cudaStreamDestroy(first));
    CHECK(cudaStreamDestroy(second));
}

static void launches() {
    std::vector<double> runs;
    for (int run = 0; run < 50; ++run) {
        CHECK(cudaDeviceSynchronize());
        Clock::time_point begin = Clock::now();
        for (int i = 0; i < 500; ++i) nothing<<<1, 1>>>(NULL);
        runs.push_back(us(begin) / 500 * 1000);
    }
    std::sort(runs.begin(), runs.end());
    printf("%-44s %10.0f ns (median), %.0f ns (best)\n", "a launch", runs[runs.size() / 2], runs[0]);
}

static void during_a_kernel() {
    int *blocks[8];
    for (int *&block : blocks) CHECK(cudaMalloc(&block, 1 << 20));
    CHECK(cudaDeviceSynchronize());
    spin<<<1, 1>>>(200000000);
    double longest = 0;
    for (int *block : blocks) {
        Clock::time_point begin = Clock::now();
        CHECK(cudaFree(block));
        longest = std::max(longest, us(begin));
    }
    CHECK(cudaDeviceSynchronize());
    printf("%-44s %10.0f ns (longest of 8)\n", "cudaFree during a kernel of 200 ms", longest * 1000);
}

static void reuse(int count) {
    int *errors = NULL;
    CHECK(cudaMallocHost(&errors, sizeof *errors));
    *errors = 0;
    cudaStream_t streams[4];
    for (cudaStream_t &stream : streams) CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    srand(1);
    for (int i = 0; i < count; ++i) {
        int words = 64 << (rand() % 12), kind = rand() % 4;
        cudaStream_t stream = streams[rand() % 4];
        int *block = NULL;
        CHECK(kind & 1 ? cudaMalloc(&block, words * sizeof *block) : cudaMallocAsync(&block, words * sizeof *block, stream));
        hold<<<1, 128, 0, stream>>>(block, words, i, errors);
        // `cudaFree` does not wait for work that uses memory of `cudaMallocAsync`.
        if (kind == 2) CHECK(cudaStreamSynchronize(stream));
        CHECK(kind & 2 ? cudaFree(block) : cudaFreeAsync(block, stream));
        if (i % 100 == 0) {
            cudaStream_t &old = streams[rand() % 4];
            CHECK(cudaStreamDestroy(old));
            CHECK(cudaStreamCreateWithFlags(&old, cudaStreamNonBlocking));
        }
    }
    CHECK(cudaDeviceSynchronize());
    printf("%-44s %10d words changed under a kernel\n", "blocks freed under kernels, reused", *errors);
    for (cudaStream_t stream : streams) CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFreeHost(errors));
}

int main(int count_given, char **words) {
    int count = count_given > 1 ? atoi(words[1]) : 100000;
    int *warm = NULL;
    CHECK(cudaMalloc(&warm, 4));
    nothing<<<1, 1>>>(warm);
    CHECK(cudaFree(warm));
    launches();
    pairs("256 B, with a launch in between", 256, count, 1);
    pairs("64 KiB, with a launch in between", 64 << 10, count, 1);
    pairs("1 MiB, with a launch in between", 1 << 20, count, 1);
    pairs("16 MiB, with a launch in between", 16 << 20, count / 10, 1);
    pairs("1 MiB, with no launch", 1 << 20, count, 0);
    stream_ordered(count);
    during_a_kernel();
    reuse(std::min(count, 20000));
    return 0;
}
