// The choice of a device, by properties and from a list.
#include "show.h"

int main() {
    cudaDeviceProp wanted;
    memset(&wanted, 0, sizeof wanted);
    int device = -1;
    CHECK(cudaChooseDevice(&device, &wanted));
    printf("nothing wanted: %d\n", device);
    wanted.major = 5;
    wanted.totalGlobalMem = 1 << 20;
    CHECK(cudaChooseDevice(&device, &wanted));
    printf("little wanted: %d\n", device);

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
