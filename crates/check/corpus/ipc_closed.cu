// A process opens the memory of another one, launches a kernel on it, and closes it before the kernel is done.
// On a GPU closing usually waits; a stale mapping gives wrong data.
// Origin: MPICH#7977 (a stale mapping gave wrong data).
// kind: ipc-closed
#include "corpus.h"

#include <sys/wait.h>
#include <unistd.h>

__global__ void fill(int *data) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    data[i] = i; // other
}

static int child() {
    cudaIpcMemHandle_t handle;
    if (read(0, &handle, sizeof handle) != sizeof handle) return 2;
    int *data = NULL;
    cudaStream_t stream = new_stream();
    CHECK(cudaIpcOpenMemHandle((void **)&data, handle, cudaIpcMemLazyEnablePeerAccess));
    fill<<<BLOCKS, THREADS, 0, stream>>>(data);
#ifdef FIXED
    CHECK(cudaStreamSynchronize(stream));
#endif
    CHECK(cudaIpcCloseMemHandle(data)); // access
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaStreamDestroy(stream));
    return 0;
}

int main(int count, char **arguments) {
    if (count > 1) return child();
    int to_child[2], status = 0;
    if (pipe(to_child) != 0) return 2;
    pid_t process = fork();
    if (process == 0) {
        dup2(to_child[0], 0);
        execl("/proc/self/exe", arguments[0], "child", (char *)NULL);
        _exit(2);
    }
    int *data = new_zeroed();
    cudaIpcMemHandle_t handle;
    CHECK(cudaIpcGetMemHandle(&handle, data));
    if (write(to_child[1], &handle, sizeof handle) != sizeof handle) return 2;
    waitpid(process, &status, 0);
    bool is_right = is_linear(read_back(data), 1, 0) && status == 0;
    CHECK(cudaFree(data));
    return finish(is_right);
}
