// Variables of the program: copies to and from them, their addresses and sizes, and kernels that use them.
#include "show.h"

struct Settings {
    float factor;
    int offset;
    char text[24];
};

__constant__ Settings settings;
__constant__ int table[16];
__device__ int counter;
__device__ float results[100];
__device__ double initialized = 2.5;
static int host_only;

__global__ void compute(int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) {
        results[i] = table[i % 16] * settings.factor + settings.offset + (float)initialized;
        atomicAdd(&counter, 1);
    }
}

int main() {
    int numbers[16];
    for (int i = 0; i < 16; i++) numbers[i] = i * i;
    Settings host = {0.5f, 100, "settings"};
    CHECK(cudaMemcpyToSymbol(settings, &host, sizeof host));
    CHECK(cudaMemcpyToSymbol(table, numbers, sizeof numbers));
    int last = 1000;
    CHECK(cudaMemcpyToSymbol(table, &last, sizeof last, 15 * sizeof(int)));
    compute<<<1, 128>>>(100);
    CHECK(cudaGetLastError());
    float back[100];
    CHECK(cudaMemcpyFromSymbol(back, results, sizeof back));
    printf("%g %g %g %g\n", back[0], back[4], back[15], back[99]);
    int count = -1;
    CHECK(cudaMemcpyFromSymbol(&count, counter, sizeof count));
    printf("counter %d\n", count);
    double start = 0;
    CHECK(cudaMemcpyFromSymbol(&start, initialized, sizeof start, 0, cudaMemcpyDefault));
    printf("initialized %g\n", start);

    Settings copy;
    CHECK(cudaMemcpyFromSymbolAsync(&copy, settings, sizeof copy, 0, cudaMemcpyDeviceToHost, cudaStreamPerThread));
    CHECK(cudaDeviceSynchronize());
    printf("%g %d %s\n", copy.factor, copy.offset, copy.text);

    void *address = NULL, *other = NULL;
    size_t bytes = 0;
    CHECK(cudaGetSymbolAddress(&address, results));
    CHECK(cudaGetSymbolAddress(&other, counter));
    CHECK(cudaGetSymbolSize(&bytes, results));
    printf("distinct: %d, results: %zu bytes", address != other, bytes);
    CHECK(cudaGetSymbolSize(&bytes, settings));
    printf(", settings: %zu bytes\n", bytes);
    CHECK(cudaMemset(address, 0, 40));
    float replaced = 7;
    CHECK(cudaMemcpy((float *)address + 20, &replaced, sizeof replaced, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpyToSymbolAsync(results, address, 40, 200, cudaMemcpyDeviceToDevice, 0));
    CHECK(cudaMemcpyFromSymbol(back, results, sizeof back));
    printf("%g %g %g %g\n", back[9], back[10], back[20], back[50]);

    SHOW(cudaMemcpyToSymbol(table, numbers, sizeof numbers + 1));
    SHOW(cudaMemcpyToSymbol(table, numbers, sizeof numbers, 4));
    SHOW(cudaMemcpyToSymbol(table, numbers, 4, 0, cudaMemcpyDeviceToHost));
    SHOW(cudaMemcpyFromSymbol(numbers, table, 4, 0, cudaMemcpyHostToDevice));
    SHOW(cudaMemcpyToSymbol(host_only, numbers, 4));
    SHOW(cudaGetSymbolAddress(&address, host_only));
    SHOW(cudaGetSymbolSize(&bytes, host_only));
    return 0;
}
