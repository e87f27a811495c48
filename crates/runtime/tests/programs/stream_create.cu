// Streams of each kind, and what they tell of themselves.
#include "show.h"

__global__ void set(int *to, int value) { to[threadIdx.x] = value + threadIdx.x; }

static void describe(const char *name, cudaStream_t stream) {
    unsigned flags = 99;
    int priority = 99, device = 99;
    CHECK(cudaStreamGetFlags(stream, &flags));
    CHECK(cudaStreamGetPriority(stream, &priority));
    CHECK(cudaStreamGetDevice(stream, &device));
    printf("%s: flags %u, priority %d, device %d\n", name, flags, priority, device);
}

int main() {
    int least = 0, greatest = 0;
    CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    printf("priorities: least %d, greatest is smaller: %d\n", least, greatest < least);
    cudaStream_t plain, loose, urgent, beyond;
    CHECK(cudaStreamCreate(&plain));
    CHECK(cudaStreamCreateWithFlags(&loose, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithPriority(&urgent, cudaStreamDefault, -1));
    CHECK(cudaStreamCreateWithPriority(&beyond, cudaStreamNonBlocking, 7));
    describe("plain", plain);
    describe("non-blocking", loose);
    describe("urgent", urgent);
    describe("beyond the range", beyond);
    describe("legacy", cudaStreamLegacy);
    describe("per thread", cudaStreamPerThread);

    unsigned long long ids[4] = {0, 0, 0, 0};
    cudaStream_t streams[4] = {plain, loose, urgent, cudaStreamLegacy};
    int equal = 0;
    for (int i = 0; i < 4; i++) CHECK(cudaStreamGetId(streams[i], &ids[i]));
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < i; j++) equal += ids[i] == ids[j];
    unsigned long long null_id = 0;
    CHECK(cudaStreamGetId(0, &null_id));
    printf("equal ids: %d, the null stream is the legacy one: %d\n", equal, null_id == ids[3]);

    int *block = NULL, back[32];
    CHECK(cudaMalloc(&block, sizeof back));
    set<<<1, 32, 0, urgent>>>(block, 10);
    CHECK(cudaGetLastError());
    CHECK(cudaStreamSynchronize(urgent));
    SHOW(cudaStreamQuery(urgent));
    CHECK(cudaMemcpyAsync(back, block, sizeof back, cudaMemcpyDeviceToHost, urgent));
    CHECK(cudaStreamDestroy(urgent));
    CHECK(cudaDeviceSynchronize());
    printf("%d to %d\n", back[0], back[31]);

    SHOW(cudaStreamCreate(NULL));
    SHOW(cudaStreamCreateWithFlags(&urgent, 8));
    SHOW(cudaStreamDestroy(0));
    SHOW(cudaStreamGetFlags(plain, NULL));
    CHECK(cudaStreamDestroy(plain));
    CHECK(cudaStreamDestroy(loose));
    CHECK(cudaStreamDestroy(beyond));
    CHECK(cudaFree(block));
    return 0;
}
