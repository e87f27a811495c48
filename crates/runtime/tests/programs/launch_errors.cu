// Launches that the device cannot run: the code of each, by every way to launch.
#include "show.h"

__global__ void store(int *to) { *to = 1; }
__global__ void __launch_bounds__(64) narrow(int *to) { *to = 2; }

static void chevrons(const char *what, dim3 grid, dim3 block, size_t shared) {
    int *to;
    CHECK(cudaMalloc(&to, sizeof *to));
    store<<<grid, block, shared>>>(to);
    printf("%s, <<<>>>: %s\n", what, cudaGetErrorName(cudaGetLastError()));
    void *arguments[] = {&to};
    printf("%s, cudaLaunchKernel: %s\n", what,
           cudaGetErrorName(cudaLaunchKernel((const void *)store, grid, block, arguments, shared, 0)));
    cudaGetLastError();
    printf("%s, cudaLaunchCooperativeKernel: %s\n", what,
           cudaGetErrorName(cudaLaunchCooperativeKernel((const void *)store, grid, block, arguments, shared, 0)));
    cudaGetLastError();
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared;
    printf("%s, cudaLaunchKernelExC: %s\n", what,
           cudaGetErrorName(cudaLaunchKernelExC(&config, (const void *)store, arguments)));
    cudaGetLastError();
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFree(to));
}

int main() {
    chevrons("one thread", 1, 1, 0);
    chevrons("a block of 1025 threads", 1, 1025, 0);
    chevrons("a block of 2560 threads", 4, 2560, 0);
    chevrons("a block 65 deep", 1, dim3(1, 1, 65), 0);
    chevrons("a block of no threads", 1, dim3(0, 1, 1), 0);
    chevrons("a grid of no blocks", dim3(0, 1, 1), 1, 0);
    chevrons("a grid 65536 high", dim3(1, 65536, 1), 1, 0);
    chevrons("1 MiB of shared memory", 1, 1, 1 << 20);
    chevrons("64 KiB of shared memory without the attribute", 1, 1, 64 << 10);
    int *to;
    CHECK(cudaMalloc(&to, sizeof *to));
    narrow<<<1, 128>>>(to);
    printf("more threads than the launch bounds: %s\n", cudaGetErrorName(cudaGetLastError()));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    store<<<1, 1, 0, stream>>>(to);
    CHECK(cudaGetLastError());
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFree(to));
    return 0;
}
