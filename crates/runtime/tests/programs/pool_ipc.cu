// A pool of another process: the child imports the pool by its descriptor, and a block of it.
#include "show.h"

#include <sys/wait.h>
#include <unistd.h>

__global__ void add(int *numbers, int count, int value) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) numbers[i] += value;
}

const int COUNT = 3000;

// The child inherits descriptors that exist before the fork only, so the pool's is sent over a socket.
#include <sys/socket.h>

static void send_descriptor(int socket, int descriptor) {
    char byte = 0, control[CMSG_SPACE(sizeof(int))] = {};
    struct iovec data = {&byte, 1};
    struct msghdr message = {};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    if (sendmsg(socket, &message, 0) != 1) exit(2);
}

static int receive_descriptor(int socket) {
    char byte = 0, control[CMSG_SPACE(sizeof(int))] = {};
    struct iovec data = {&byte, 1};
    struct msghdr message = {};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    if (recvmsg(socket, &message, 0) != 1) exit(2);
    int descriptor = -1;
    memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof descriptor);
    return descriptor;
}

static int child(int socket) {
    int descriptor = receive_descriptor(socket);
    cudaMemPoolPtrExportData data;
    if (read(socket, &data, sizeof data) != sizeof data) return 2;
    cudaMemPool_t pool;
    CHECK(cudaMemPoolImportFromShareableHandle(&pool, (void *)(size_t)descriptor, cudaMemHandleTypePosixFileDescriptor, 0));
    int *numbers = NULL, first[2], *other = NULL;
    CHECK(cudaMemPoolImportPointer((void **)&numbers, pool, &data));
    CHECK(cudaMemcpy(first, numbers, sizeof first, cudaMemcpyDeviceToHost));
    printf("child sees %d %d\n", first[0], first[1]);
    add<<<(COUNT + 127) / 128, 128>>>(numbers, COUNT, 1000);
    CHECK(cudaDeviceSynchronize());
    SHOW(cudaMallocFromPoolAsync(&other, 64, pool, 0));
    SHOW(cudaMemPoolExportToShareableHandle(&descriptor, pool, cudaMemHandleTypePosixFileDescriptor, 0));
    SHOW(cudaMemPoolExportPointer(&data, numbers));
    SHOW(cudaFree(numbers));
    SHOW(cudaMemPoolDestroy(pool));
    fflush(stdout);
    char done = 1;
    return write(socket, &done, 1) == 1 ? 0 : 2;
}

int main() {
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) return 2;
    // Before the first call: the state of CUDA does not survive a fork.
    pid_t pid = fork();
    if (pid == 0) _exit(child(sockets[1]));

    int types = 0;
    CHECK(cudaDeviceGetAttribute(&types, cudaDevAttrMemoryPoolSupportedHandleTypes, 0));
    printf("pools can be shared by descriptors: %d\n", (types & cudaMemHandleTypePosixFileDescriptor) != 0);
    cudaMemPool_t pool, plain;
    cudaMemPoolProps props = {};
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeDevice;
    props.location.id = 0;
    CHECK(cudaMemPoolCreate(&plain, &props));
    props.handleTypes = cudaMemHandleTypePosixFileDescriptor;
    CHECK(cudaMemPoolCreate(&pool, &props));
    int descriptor = -1;
    SHOW(cudaMemPoolExportToShareableHandle(&descriptor, plain, cudaMemHandleTypePosixFileDescriptor, 0));
    CHECK(cudaMemPoolExportToShareableHandle(&descriptor, pool, cudaMemHandleTypePosixFileDescriptor, 0));
    int *numbers = NULL, *unshared = NULL;
    static int host[COUNT];
    for (int i = 0; i < COUNT; i++) host[i] = i + 7;
    CHECK(cudaMallocFromPoolAsync(&numbers, sizeof host, pool, 0));
    CHECK(cudaMallocFromPoolAsync(&unshared, sizeof host, plain, 0));
    CHECK(cudaMemcpy(numbers, host, sizeof host, cudaMemcpyHostToDevice));
    // Such a copy of pageable memory returns when it has read the memory, not when the numbers are there.
    CHECK(cudaDeviceSynchronize());
    cudaMemPoolPtrExportData data;
    SHOW(cudaMemPoolExportPointer(&data, unshared));
    CHECK(cudaMemPoolExportPointer(&data, numbers));
    fflush(stdout);
    send_descriptor(sockets[0], descriptor);
    if (write(sockets[0], &data, sizeof data) != sizeof data) return 2;
    char done = 0;
    int status = 0;
    if (read(sockets[0], &done, 1) != 1) return 2;
    waitpid(pid, &status, 0);
    printf("child ended with %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    CHECK(cudaMemcpy(host, numbers, sizeof host, cudaMemcpyDeviceToHost));
    int wrong = 0;
    for (int i = 0; i < COUNT; i++) wrong += host[i] != i + 1007;
    printf("parent sees %d, wrong %d\n", host[0], wrong);
    CHECK(cudaFreeAsync(numbers, 0));
    CHECK(cudaFreeAsync(unshared, 0));
    CHECK(cudaStreamSynchronize(0));
    CHECK(cudaMemPoolDestroy(pool));
    CHECK(cudaMemPoolDestroy(plain));
    return 0;
}
