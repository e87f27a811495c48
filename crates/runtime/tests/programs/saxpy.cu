// One kernel over several blocks, and a launch that is refused.
#include <cstdio>

__global__ void saxpy(int count, float factor, const float *x, float *y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) y[i] = factor * x[i] + y[i];
}

int main() {
    const int count = 1000;
    static float x[count], y[count];
    for (int i = 0; i < count; i++) {
        x[i] = i;
        y[i] = 1;
    }
    float *device_x = nullptr, *device_y = nullptr;
    cudaMalloc(&device_x, sizeof x);
    cudaMalloc(&device_y, sizeof y);
    cudaMemcpy(device_x, x, sizeof x, cudaMemcpyHostToDevice);
    cudaMemcpy(device_y, y, sizeof y, cudaMemcpyHostToDevice);
    saxpy<<<(count + 255) / 256, 256>>>(count, 2, device_x, device_y);
    printf("launch: %s\n", cudaGetErrorName(cudaGetLastError()));
    printf("synchronize: %s\n", cudaGetErrorName(cudaDeviceSynchronize()));
    cudaMemcpy(y, device_y, sizeof y, cudaMemcpyDeviceToHost);
    int wrong = 0;
    for (int i = 0; i < count; i++) wrong += y[i] != 2 * i + 1;
    printf("%d wrong, the last is %g\n", wrong, y[count - 1]);

    saxpy<<<1, 2560>>>(count, 2, device_x, device_y);
    printf("too many threads: %s\n", cudaGetErrorName(cudaGetLastError()));
    printf("again: %s\n", cudaGetErrorName(cudaGetLastError()));
    cudaFree(device_x);
    printf("free: %s\n", cudaGetErrorName(cudaFree(device_y)));
    return 0;
}
