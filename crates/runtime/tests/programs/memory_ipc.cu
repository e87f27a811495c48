// Device memory of another process: the child opens the parent's block, and a kernel of the child writes it.
#include "show.h"

#include <sys/wait.h>
#include <unistd.h>

__global__ void write_squares(int *numbers, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) numbers[i] = numbers[i] * numbers[i] + 1;
}

const int COUNT = 500;

static int child(int from_parent) {
    cudaIpcMemHandle_t handle;
    if (read(from_parent, &handle, sizeof handle) != sizeof handle) return 2;
    int *numbers = NULL;
    CHECK(cudaIpcOpenMemHandle((void **)&numbers, handle, cudaIpcMemLazyEnablePeerAccess));
    int first[3];
    CHECK(cudaMemcpy(first, numbers, sizeof first, cudaMemcpyDeviceToHost));
    printf("child sees %d %d %d\n", first[0], first[1], first[2]);
    write_squares<<<(COUNT + 127) / 128, 128>>>(numbers, COUNT);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    SHOW(cudaFree(numbers));
    SHOW(cudaIpcCloseMemHandle(numbers));
    SHOW(cudaIpcCloseMemHandle(numbers));
    fflush(stdout);
    return 0;
}

int main() {
    int to_child[2];
    if (pipe(to_child) != 0) return 2;
    // Before the first call: the state of CUDA does not survive a fork.
    pid_t pid = fork();
    if (pid == 0) _exit(child(to_child[0]));

    int *numbers = NULL, host[COUNT];
    CHECK(cudaMalloc(&numbers, sizeof host));
    for (int i = 0; i < COUNT; i++) host[i] = i + 3;
    CHECK(cudaMemcpy(numbers, host, sizeof host, cudaMemcpyHostToDevice));
    CHECK(cudaDeviceSynchronize());
    cudaIpcMemHandle_t handle;
    CHECK(cudaIpcGetMemHandle(&handle, numbers));
    if (write(to_child[1], &handle, sizeof handle) != sizeof handle) return 2;
    int status = 0;
    waitpid(pid, &status, 0);
    printf("child ended with %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    CHECK(cudaMemcpy(host, numbers, sizeof host, cudaMemcpyDeviceToHost));
    int wrong = 0;
    for (int i = 0; i < COUNT; i++) wrong += host[i] != (i + 3) * (i + 3) + 1;
    printf("parent sees %d %d, wrong %d\n", host[0], host[COUNT - 1], wrong);

    void *pinned = NULL;
    CHECK(cudaMallocHost(&pinned, 64));
    SHOW(cudaIpcGetMemHandle(&handle, pinned));
    SHOW(cudaIpcCloseMemHandle(numbers));
    CHECK(cudaFree(numbers));
    return 0;
}
