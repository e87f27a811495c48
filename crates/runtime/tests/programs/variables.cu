// Constants and variables of the device: their initial values, and values that the host and kernels give them.
#include <cstdio>

__constant__ float weights[4] = {0.5f, 0.25f, 0.125f, 0.0625f};
__constant__ int offset;
__device__ int counter = 40;
__device__ double table[8];
static __device__ unsigned hidden = 3;

__global__ void use(float *result) {
    int i = threadIdx.x;
    result[i] = weights[i] + offset;
    table[i] = i * 1.5 + hidden;
    atomicAdd(&counter, 1);
}

static void launch(float *device) {
    float result[4];
    use<<<1, 4>>>(device);
    cudaMemcpy(result, device, sizeof result, cudaMemcpyDeviceToHost);
    printf("results: %g %g %g %g, %s\n", result[0], result[1], result[2], result[3], cudaGetErrorName(cudaGetLastError()));
}

int main() {
    float *device = nullptr;
    cudaMalloc(&device, 4 * sizeof(float));
    launch(device);

    const int ten = 10, unit = 2;
    const float weight = 8;
    printf("%s ", cudaGetErrorName(cudaMemcpyToSymbol(offset, &ten, sizeof ten)));
    printf("%s ", cudaGetErrorName(cudaMemcpyToSymbol(weights, &weight, sizeof weight, 2 * sizeof weight)));
    printf("%s\n", cudaGetErrorName(cudaMemcpyToSymbol(hidden, &unit, sizeof unit)));
    launch(device);

    int count = 0;
    double entries[8];
    cudaMemcpyFromSymbol(&count, counter, sizeof count);
    cudaMemcpyFromSymbol(entries, table, sizeof entries);
    printf("counter %d, table %g %g %g %g, rest %g\n", count, entries[0], entries[1], entries[2], entries[3], entries[4]);

    void *address = nullptr;
    size_t bytes = 0;
    cudaGetSymbolAddress(&address, counter);
    cudaGetSymbolSize(&bytes, table);
    cudaMemcpy(&count, address, sizeof count, cudaMemcpyDeviceToHost);
    printf("at its address %d, table of %zu bytes\n", count, bytes);
    return 0;
}
