// The names of a device, and a reset: memory and streams are gone, kernels and variables are loaded again.
#include "show.h"

__device__ int counter = 40;

__global__ void count(int *to) { *to = ++counter; }

int main() {
    int devices = 0, device = 77, version = 0;
    CHECK(cudaGetDeviceCount(&devices));
    printf("there are devices: %d\n", devices > 0);
    CHECK(cudaRuntimeGetVersion(&version));
    printf("runtime %d\n", version);
    CHECK(cudaDriverGetVersion(&version));
    printf("the driver is as new: %d\n", version >= 13000);
    SHOW(cudaGetDeviceCount(NULL));
    SHOW(cudaRuntimeGetVersion(NULL));

    char name[64], small[8];
    memset(name, 'x', sizeof name);
    CHECK(cudaDeviceGetPCIBusId(name, sizeof name, 0));
    printf("%zu characters, %d colons\n", strlen(name), (strchr(name, ':') != NULL) + (strrchr(name, ':') != strchr(name, ':')));
    CHECK(cudaDeviceGetByPCIBusId(&device, name));
    printf("device %d\n", device);
    SHOW(cudaDeviceGetPCIBusId(small, sizeof small, 0));
    SHOW(cudaDeviceGetPCIBusId(name, sizeof name, 100));
    SHOW(cudaDeviceGetByPCIBusId(&device, "nonsense"));
    SHOW(cudaDeviceGetByPCIBusId(&device, "ffff:ff:1f.7"));

    int *block = NULL, value = 0;
    cudaStream_t stream;
    for (int round = 0; round < 2; round++) {
        CHECK(cudaMalloc(&block, sizeof(int)));
        CHECK(cudaStreamCreate(&stream));
        count<<<1, 1, 0, stream>>>(block);
        count<<<1, 1, 0, stream>>>(block);
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaMemcpy(&value, block, sizeof value, cudaMemcpyDeviceToHost));
        printf("counted to %d\n", value);
        SHOW(cudaDeviceReset());
        SHOW(cudaFree(block));
    }
    CHECK(cudaMemcpyFromSymbol(&value, counter, sizeof value));
    printf("a new start: %d\n", value);
    SHOW(cudaDeviceReset());
    SHOW(cudaDeviceReset());
    return 0;
}
