// A managed variable: the host reads its initial value, a kernel changes it, and the host reads and writes it again.
#include <cstdio>

__managed__ int total = 5;
__managed__ float values[64];

__global__ void add(int more) {
    atomicAdd(&total, more);
    values[threadIdx.x] += threadIdx.x;
}

int main() {
    printf("initially %d, %g\n", total, values[63]);
    for (int i = 0; i < 64; i++) values[i] = 100;
    add<<<1, 64>>>(2);
    printf("%s\n", cudaGetErrorName(cudaDeviceSynchronize()));
    printf("total %d, values %g to %g\n", total, values[0], values[63]);
    total = -1;
    add<<<1, 32>>>(1);
    cudaDeviceSynchronize();
    printf("total %d, values %g to %g\n", total, values[31], values[32]);
    return 0;
}
