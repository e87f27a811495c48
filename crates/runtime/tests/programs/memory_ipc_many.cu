// Several blocks of another process: neighbours, a large one, and one that is opened twice.
#include "show.h"

#include <sys/wait.h>
#include <unistd.h>

const int BLOCKS = 4;
const size_t WORDS[BLOCKS] = {100, 100, 3 << 18, 10 << 20};

__global__ void add(int *numbers, size_t count, int value) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x) numbers[i] += value;
}

static int child(int from_parent, int to_parent) {
    cudaIpcMemHandle_t handles[BLOCKS];
    if (read(from_parent, handles, sizeof handles) != sizeof handles) return 2;
    int *blocks[BLOCKS], *again = NULL;
    for (int b = 0; b < BLOCKS; b++) {
        CHECK(cudaIpcOpenMemHandle((void **)&blocks[b], handles[b], cudaIpcMemLazyEnablePeerAccess));
        int ends[2];
        CHECK(cudaMemcpy(&ends[0], blocks[b], sizeof(int), cudaMemcpyDeviceToHost));
        CHECK(cudaMemcpy(&ends[1], blocks[b] + WORDS[b] - 1, sizeof(int), cudaMemcpyDeviceToHost));
        printf("block %d: %d to %d\n", b, ends[0], ends[1]);
        add<<<8, 128>>>(blocks[b], WORDS[b], 10 * b + 1);
        CHECK(cudaGetLastError());
    }
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaIpcOpenMemHandle((void **)&again, handles[1], cudaIpcMemLazyEnablePeerAccess));
    printf("opened twice: %s address\n", again == blocks[1] ? "same" : "another");
    SHOW(cudaIpcCloseMemHandle(again));
    int first = 0;
    SHOW(cudaMemcpy(&first, blocks[1], sizeof first, cudaMemcpyDeviceToHost));
    printf("after closing it once: %d\n", first);
    for (int b = 0; b < BLOCKS; b++) SHOW(cudaIpcCloseMemHandle(blocks[b]));
    SHOW(cudaIpcCloseMemHandle(blocks[0]));
    SHOW(cudaIpcOpenMemHandle((void **)&again, handles[0], 0));
    fflush(stdout);
    return write(to_parent, "x", 1) == 1 ? 0 : 2;
}

int main() {
    int to_child[2], to_parent[2];
    if (pipe(to_child) != 0 || pipe(to_parent) != 0) return 2;
    pid_t pid = fork();
    if (pid == 0) _exit(child(to_child[0], to_parent[1]));

    int *blocks[BLOCKS];
    cudaIpcMemHandle_t handles[BLOCKS];
    for (int b = 0; b < BLOCKS; b++) {
        CHECK(cudaMalloc(&blocks[b], WORDS[b] * sizeof(int)));
        CHECK(cudaMemset(blocks[b], 0, WORDS[b] * sizeof(int)));
        add<<<8, 128>>>(blocks[b], WORDS[b], b + 5);
        CHECK(cudaGetLastError());
        CHECK(cudaIpcGetMemHandle(&handles[b], blocks[b]));
    }
    CHECK(cudaDeviceSynchronize());
    if (write(to_child[1], handles, sizeof handles) != sizeof handles) return 2;
    char done;
    if (read(to_parent[0], &done, 1) != 1) return 2;
    int status = 0;
    waitpid(pid, &status, 0);
    printf("child ended with %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    for (int b = 0; b < BLOCKS; b++) {
        int ends[2];
        CHECK(cudaMemcpy(&ends[0], blocks[b], sizeof(int), cudaMemcpyDeviceToHost));
        CHECK(cudaMemcpy(&ends[1], blocks[b] + WORDS[b] - 1, sizeof(int), cudaMemcpyDeviceToHost));
        printf("block %d: %d to %d\n", b, ends[0], ends[1]);
        CHECK(cudaFree(blocks[b]));
    }
    SHOW(cudaIpcGetMemHandle(&handles[0], blocks[0]));
    return 0;
}
