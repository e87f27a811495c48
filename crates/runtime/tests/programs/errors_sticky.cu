// The last error of a thread: what sets it, what forgets it, and an error that stays.
#include "show.h"

__global__ void wild(int *to) { *to = 1; }

int main() {
    printf("%s\n", cudaGetErrorName(cudaPeekAtLastError()));
    printf("%s\n", cudaGetErrorName(cudaMalloc(NULL, 1)));
    printf("peek: %s\n", cudaGetErrorName(cudaPeekAtLastError()));
    printf("get: %s\n", cudaGetErrorName(cudaGetLastError()));
    printf("again: %s\n", cudaGetErrorName(cudaGetLastError()));
    printf("%s\n", cudaGetErrorName(cudaSetDevice(99)));
    int device = -1;
    CHECK(cudaGetDevice(&device));
    printf("device %d, last: %s\n", device, cudaGetErrorName(cudaGetLastError()));
    cudaEvent_t event;
    CHECK(cudaEventCreate(&event));
    CHECK(cudaEventRecord(event, 0));
    CHECK(cudaEventSynchronize(event));
    printf("unknown code: %s, %s\n", cudaGetErrorName((cudaError_t)12345), cudaGetErrorString((cudaError_t)12345));
    printf("%s\n", cudaGetErrorString(cudaErrorIllegalAddress));
    wild<<<1, 1>>>((int *)0x10);
    printf("launch: %s\n", cudaGetErrorName(cudaGetLastError()));
    printf("synchronize: %s\n", cudaGetErrorName(cudaDeviceSynchronize()));
    printf("last: %s\n", cudaGetErrorName(cudaGetLastError()));
    printf("last again: %s\n", cudaGetErrorName(cudaGetLastError()));
    int *to;
    printf("malloc: %s\n", cudaGetErrorName(cudaMalloc(&to, 4)));
    printf("last: %s\n", cudaGetErrorName(cudaGetLastError()));
    printf("free null: %s\n", cudaGetErrorName(cudaFree(NULL)));
    return 0;
}
