// An owner frees memory as soon as it knows that another process is done with it: from an event of both processes, or from a message that a
// function of the host sends. The other process itself has not waited for its kernel then.
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(call)                                                                    \
    do {                                                                               \
        cudaError_t error = (call);                                                    \
        if (error != cudaSuccess) {                                                    \
            printf("line %d: %s\n", __LINE__, cudaGetErrorName(error));                \
            exit(1);                                                                   \
        }                                                                              \
    } while (0)

const int N = 1024;

struct Handles {
    cudaIpcMemHandle_t memory;
    cudaIpcEventHandle_t event;
};

__global__ void add(const int *data, int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = data[i] + 1;
}

static void send(int to) {
    char word = 1;
    if (write(to, &word, 1) != 1) exit(2);
}

static void receive(int from) {
    char word;
    if (read(from, &word, 1) != 1) exit(2);
}

static void answer(void *) { send(1); }

static int child(bool by_event) {
    Handles handles;
    if (read(0, &handles, sizeof handles) != sizeof handles) return 2;
    int *data, *out, sums[N];
    cudaStream_t stream;
    cudaEvent_t event;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaMalloc(&out, sizeof sums));
    CHECK(cudaIpcOpenMemHandle((void **)&data, handles.memory, cudaIpcMemLazyEnablePeerAccess));
    CHECK(cudaIpcOpenEventHandle(&event, handles.event));
    add<<<4, N / 4, 0, stream>>>(data, out);
    if (by_event) {
        CHECK(cudaEventRecord(event, stream));
        send(1);
    } else {
        CHECK(cudaLaunchHostFunc(stream, answer, NULL));
    }
    receive(0);
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaIpcCloseMemHandle(data));
    CHECK(cudaMemcpy(sums, out, sizeof sums, cudaMemcpyDeviceToHost));
    for (int i = 0; i < N; i++)
        if (sums[i] != i + 1) return 1;
    CHECK(cudaEventDestroy(event));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(out));
    return 0;
}

static int owner(const char *program, const char *how) {
    int to_child[2], to_parent[2], status = 0, numbers[N], *data;
    if (pipe(to_child) != 0 || pipe(to_parent) != 0) return 2;
    pid_t process = fork();
    if (process == 0) {
        dup2(to_child[0], 0);
        dup2(to_parent[1], 1);
        execl("/proc/self/exe", program, how, (char *)NULL);
        _exit(2);
    }
    for (int i = 0; i < N; i++) numbers[i] = i;
    Handles handles;
    cudaEvent_t event;
    CHECK(cudaMalloc(&data, sizeof numbers));
    CHECK(cudaMemcpy(data, numbers, sizeof numbers, cudaMemcpyHostToDevice));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaEventCreateWithFlags(&event, cudaEventInterprocess | cudaEventDisableTiming));
    CHECK(cudaIpcGetMemHandle(&handles.memory, data));
    CHECK(cudaIpcGetEventHandle(&handles.event, event));
    if (write(to_child[1], &handles, sizeof handles) != sizeof handles) return 2;
    receive(to_parent[0]);
    if (strcmp(how, "event") == 0) CHECK(cudaEventSynchronize(event));
    CHECK(cudaFree(data));
    send(to_child[1]);
    waitpid(process, &status, 0);
    CHECK(cudaEventDestroy(event));
    return status;
}

int main(int count, char **arguments) {
    if (count > 1) return child(strcmp(arguments[1], "event") == 0);
    // A child of a process that uses CUDA starts another program, which is allowed.
    printf("by an event: %d\n", owner(arguments[0], "event"));
    printf("by a function: %d\n", owner(arguments[0], "function"));
    return 0;
}
