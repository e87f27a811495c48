// An event of another process: the child waits for the parent's kernel.
#include "show.h"

#include <sys/wait.h>
#include <unistd.h>

__global__ void fill_slowly(int *numbers, int count) {
    for (int i = threadIdx.x; i < count; i += blockDim.x) numbers[i] = i * i;
}

struct Shared {
    cudaIpcMemHandle_t memory;
    cudaIpcEventHandle_t event;
};

const int COUNT = 20000;

static int child(int from_parent, int to_parent) {
    Shared shared;
    if (read(from_parent, &shared, sizeof shared) != sizeof shared) return 2;
    int *numbers = NULL;
    static int back[COUNT];
    cudaEvent_t event;
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaIpcOpenMemHandle((void **)&numbers, shared.memory, cudaIpcMemLazyEnablePeerAccess));
    CHECK(cudaIpcOpenEventHandle(&event, shared.event));
    CHECK(cudaStreamWaitEvent(stream, event, 0));
    CHECK(cudaMemcpyAsync(back, numbers, sizeof back, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    int wrong = 0;
    for (int i = 0; i < COUNT; i++) wrong += back[i] != i * i;
    printf("child: wrong %d\n", wrong);
    float milliseconds = 0;
    SHOW(cudaEventElapsedTime(&milliseconds, event, event));
    SHOW(cudaEventQuery(event));
    SHOW(cudaEventSynchronize(event));
    SHOW(cudaIpcGetEventHandle(&shared.event, event));
    SHOW(cudaEventDestroy(event));
    SHOW(cudaIpcCloseMemHandle(numbers));
    fflush(stdout);
    char done = 1;
    return write(to_parent, &done, 1) == 1 ? 0 : 2;
}

int main() {
    int to_child[2], to_parent[2];
    if (pipe(to_child) != 0 || pipe(to_parent) != 0) return 2;
    // Before the first call: the state of CUDA does not survive a fork.
    pid_t pid = fork();
    if (pid == 0) _exit(child(to_child[0], to_parent[1]));

    int *numbers = NULL;
    cudaEvent_t event, plain;
    Shared shared;
    CHECK(cudaMalloc(&numbers, COUNT * sizeof(int)));
    CHECK(cudaEventCreateWithFlags(&plain, cudaEventDisableTiming));
    SHOW(cudaIpcGetEventHandle(&shared.event, plain));
    cudaEvent_t timed = NULL;
    SHOW(cudaEventCreateWithFlags(&timed, cudaEventInterprocess));
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess));
    CHECK(cudaIpcGetEventHandle(&shared.event, event));
    CHECK(cudaIpcGetMemHandle(&shared.memory, numbers));
    cudaEvent_t own;
    SHOW(cudaIpcOpenEventHandle(&own, shared.event));
    fill_slowly<<<1, 32>>>(numbers, COUNT);
    CHECK(cudaEventRecord(event));
    fflush(stdout);
    if (write(to_child[1], &shared, sizeof shared) != sizeof shared) return 2;
    char done = 0;
    int status = 0;
    if (read(to_parent[0], &done, 1) != 1) return 2;
    waitpid(pid, &status, 0);
    printf("child ended with %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    CHECK(cudaEventDestroy(event));
    CHECK(cudaFree(numbers));
    return 0;
}
