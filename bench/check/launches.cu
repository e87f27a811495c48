// 100,000 launches with copies and events: the time on the host, and until the device is done.
#include <chrono>
#include <cstdio>
#include <cstdlib>

#define CHECK(...)                                                        \
    do {                                                                  \
        cudaError_t error_ = (__VA_ARGS__);                               \
        if (error_ != cudaSuccess) {                                      \
            fprintf(stderr, "%s: %s\n", #__VA_ARGS__, cudaGetErrorName(error_)); \
            exit(1);                                                      \
        }                                                                 \
    } while (0)

__global__ void step(const float *in, float *out, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = in[i] * 1.5f + 1.0f;
}

struct Times {
    double submit_ms, total_ms;
};

// Each round has ten launches, a copy to the host, an event, and a wait of the other stream for it.
static Times run(int launches, float **blocks, float *host, cudaStream_t *streams, cudaEvent_t *events, int count) {
    auto start = std::chrono::steady_clock::now();
    for (int round = 0; round < launches / 10; round++) {
        cudaStream_t stream = streams[round % 2];
        for (int i = 0; i < 10; i++) step<<<(count + 255) / 256, 256, 0, stream>>>(blocks[i % 4], blocks[(i + 1) % 4], count);
        CHECK(cudaMemcpyAsync(host, blocks[0], 1024, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaEventRecord(events[round % 2], stream));
        CHECK(cudaStreamWaitEvent(streams[(round + 1) % 2], events[round % 2], 0));
    }
    auto submitted = std::chrono::steady_clock::now();
    CHECK(cudaDeviceSynchronize());
    auto done = std::chrono::steady_clock::now();
    auto ms = [&](auto end) { return std::chrono::duration<double, std::milli>(end - start).count(); };
    return {ms(submitted), ms(done)};
}

int main(int argc, char **argv) {
    int launches = argc > 1 ? atoi(argv[1]) : 100000, count = argc > 2 ? atoi(argv[2]) : 1 << 12;
    float *blocks[4], *host;
    cudaStream_t streams[2];
    cudaEvent_t events[2];
    for (auto &block : blocks) {
        CHECK(cudaMalloc(&block, count * sizeof(float)));
        CHECK(cudaMemset(block, 0, count * sizeof(float)));
    }
    CHECK(cudaMallocHost(&host, 1024));
    for (auto &stream : streams) CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (auto &event : events) CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CHECK(cudaDeviceSynchronize());
    run(launches / 10, blocks, host, streams, events, count);
    Times times = run(launches, blocks, host, streams, events, count);
    printf("%.3f %.3f\n", times.submit_ms, times.total_ms);
    for (auto &event : events) CHECK(cudaEventDestroy(event));
    for (auto &stream : streams) CHECK(cudaStreamDestroy(stream));
    for (auto &block : blocks) CHECK(cudaFree(block));
    CHECK(cudaFreeHost(host));
    return 0;
}
