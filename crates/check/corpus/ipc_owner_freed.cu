// A process exports memory and frees it while a kernel of another process still uses it: the answer comes before the kernel is done.
// On a GPU the memory stays mapped for the other process, or is given to someone else while the kernel writes it.
// Origin: an acknowledgement that is sent when the work is submitted, not when it is done.
// kind: ipc-closed
#include "corpus.h"

#include <sys/wait.h>
#include <unistd.h>

__global__ void add(const int *data, int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = data[i] + 1; // other
}

static int child() {
    cudaIpcMemHandle_t handle;
    if (read(0, &handle, sizeof handle) != sizeof handle) return 2;
    int *data = NULL, *out = new_zeroed();
    cudaStream_t stream = new_stream();
    CHECK(cudaIpcOpenMemHandle((void **)&data, handle, cudaIpcMemLazyEnablePeerAccess));
    add<<<BLOCKS, THREADS, 0, stream>>>(data, out);
#ifdef FIXED
    CHECK(cudaStreamSynchronize(stream));
#endif
    char word = 1; // "I do not need it any more."
    if (write(1, &word, 1) != 1 || read(0, &word, 1) != 1) return 2;
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaIpcCloseMemHandle(data));
    bool is_right = is_linear(read_back(out), 1, 1);
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(out));
    return is_right || !IS_FIXED ? 0 : 1;
}

int main(int count, char **arguments) {
    if (count > 1) return child();
    int to_child[2], to_parent[2], status = 0;
    if (pipe(to_child) != 0 || pipe(to_parent) != 0) return 2;
    pid_t process = fork();
    if (process == 0) {
        dup2(to_child[0], 0);
        dup2(to_parent[1], 1);
        execl("/proc/self/exe", arguments[0], "child", (char *)NULL);
        _exit(2);
    }
    int *data = new_counted();
    cudaIpcMemHandle_t handle;
    char word = 0;
    CHECK(cudaIpcGetMemHandle(&handle, data));
    if (write(to_child[1], &handle, sizeof handle) != sizeof handle) return 2;
    if (read(to_parent[0], &word, 1) != 1) return 2;
    CHECK(cudaFree(data)); // access
    if (write(to_child[1], &word, 1) != 1) return 2;
    waitpid(process, &status, 0);
    return finish(status == 0);
}
