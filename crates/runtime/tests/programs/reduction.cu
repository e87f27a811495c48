// A sum through static and through dynamic shared memory, and by shuffles, with an atomic addition for each block.
#include <cstdio>

const int threads = 256;

__global__ void sum_static(const int *values, int count, int *result) {
    __shared__ int part[threads];
    int i = blockIdx.x * threads + threadIdx.x;
    part[threadIdx.x] = i < count ? values[i] : 0;
    __syncthreads();
    for (int half = threads / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(result, part[0]);
}

template <typename T> __global__ void sum_dynamic(const int *values, int count, T *result) {
    extern __shared__ int part[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    part[threadIdx.x] = i < count ? values[i] : 0;
    __syncthreads();
    if (threadIdx.x == 0) {
        T sum = 0;
        for (int other = 0; other < blockDim.x; other++) sum += part[other];
        atomicAdd(result, sum);
    }
}

__global__ void sum_shuffle(const int *values, int count, int *result) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int sum = i < count ? values[i] : 0;
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_down_sync(0xffffffff, sum, distance);
    if (threadIdx.x % 32 == 0) atomicAdd(result, sum);
}

int main() {
    const int count = 5000, blocks = (count + threads - 1) / threads;
    static int values[count];
    int expected = 0;
    for (int i = 0; i < count; i++) {
        values[i] = i * 7 % 1001 - 500;
        expected += values[i];
    }
    int *device = nullptr;
    float *floats = nullptr;
    cudaMalloc(&device, (count + 3) * sizeof(int));
    cudaMemcpy(device, values, sizeof values, cudaMemcpyHostToDevice);
    const int zeros[3] = {0, 0, 0};
    int *results = device + count;
    cudaMemcpy(results, zeros, sizeof zeros, cudaMemcpyHostToDevice);
    cudaMalloc(&floats, sizeof(float));
    cudaMemcpy(floats, zeros, sizeof(float), cudaMemcpyHostToDevice);

    sum_static<<<blocks, threads>>>(device, count, results);
    sum_dynamic<int><<<blocks, threads, threads * sizeof(int)>>>(device, count, results + 1);
    sum_dynamic<float><<<blocks, threads, threads * sizeof(int)>>>(device, count, floats);
    sum_shuffle<<<blocks, threads>>>(device, count, results + 2);

    int sums[3];
    float sum = 0;
    cudaMemcpy(sums, results, sizeof sums, cudaMemcpyDeviceToHost);
    cudaMemcpy(&sum, floats, sizeof sum, cudaMemcpyDeviceToHost);
    printf("expected %d, static %d, dynamic %d and %g, shuffle %d\n", expected, sums[0], sums[1], sum, sums[2]);
    printf("%s\n", cudaGetErrorName(cudaGetLastError()));
    return 0;
}
