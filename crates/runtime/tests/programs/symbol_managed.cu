// Managed variables: the host and kernels use them by name.
#include "show.h"

__managed__ int total = 5;
__managed__ float numbers[256];

__global__ void work() {
    numbers[threadIdx.x] = numbers[threadIdx.x] * 2 + 1;
    atomicAdd(&total, (int)threadIdx.x);
}

int main() {
    printf("total %d\n", total);
    for (int i = 0; i < 256; i++) numbers[i] = (float)i;
    work<<<1, 256>>>();
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    printf("total %d, numbers %g %g\n", total, numbers[0], numbers[255]);
    total = 0;
    work<<<1, 256>>>();
    CHECK(cudaDeviceSynchronize());
    printf("total %d, numbers %g %g\n", total, numbers[0], numbers[255]);

    void *address = NULL;
    size_t bytes = 0;
    CHECK(cudaGetSymbolAddress(&address, numbers));
    CHECK(cudaGetSymbolSize(&bytes, numbers));
    printf("the host's address is the device's: %d, %zu bytes\n", address == numbers, bytes);
    float value = 0.5f;
    CHECK(cudaMemcpyToSymbol(numbers, &value, sizeof value, 4));
    CHECK(cudaDeviceSynchronize());
    printf("%g %g\n", numbers[0], numbers[1]);
    cudaPointerAttributes found;
    CHECK(cudaPointerGetAttributes(&found, &total));
    printf("type %d, device %d\n", found.type, found.device);
    return 0;
}
