// nvcc: parts/two_units.cu
// Kernels and variables in two files, some of them with the same names.
#include <cstdio>

static __device__ int state = 1;

static __global__ void change() { state += 10; }
__global__ void first(int *result) { *result = state; }

int second_unit(int *device);

int main() {
    int *device = nullptr;
    cudaMalloc(&device, sizeof(int));
    change<<<1, 1>>>();
    first<<<1, 1>>>(device);
    int result = 0;
    cudaMemcpy(&result, device, sizeof result, cudaMemcpyDeviceToHost);
    printf("first unit: %d\n", result);
    printf("second unit: %d\n", second_unit(device));
    first<<<1, 1>>>(device);
    cudaMemcpy(&result, device, sizeof result, cudaMemcpyDeviceToHost);
    printf("first unit again: %d, %s\n", result, cudaGetErrorName(cudaGetLastError()));
    return 0;
}
