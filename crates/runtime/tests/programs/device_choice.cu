// The choice of a device, by properties and from a list.
#include "show.h"

int main() {
    cudaDeviceProp wished;
    memset(&wished, 0, sizeof wished);
    int device = -1;
    CHECK(cudaChooseDevice(&device, &wished));
    printf("no wish: %d\n", device);
    wished.major = 5;
    wished.totalGlobalMem = 1 << 20;
    CHECK(cudaChooseDevice(&device, &wished));
    printf("modest wishes: %d\n", device);

    int devices[2] = {0, 99};
    SHOW(cudaSetValidDevices(devices, 1));
    SHOW(cudaGetDevice(&device));
    printf("current: %d\n", device);
    SHOW(cudaSetValidDevices(NULL, 1));
    SHOW(cudaSetValidDevices(devices + 1, 1));
    SHOW(cudaSetValidDevices(NULL, 0));
    SHOW(cudaSetDevice(0));
    SHOW(cudaSetDevice(99));
    SHOW(cudaSetDevice(-1));
    void *block = NULL;
    CHECK(cudaMalloc(&block, 64));
    SHOW(cudaFree(block));
    CHECK(cudaGetDevice(&device));
    printf("current: %d\n", device);
    return 0;
}
