// Four workloads, for the cost of `freehold check`. Each prints what it computed, and the peak of its resident memory.
//
//     cost WORKLOAD SIZE STREAMS LAUNCHES
//
// SIZE is the number of floats of an array, or the width of a matrix, in each stream; LAUNCHES the number in each stream.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vector>

static void require(cudaError_t error) {
    if (error != cudaSuccess) {
        fprintf(stderr, "%s\n", cudaGetErrorString(error));
        exit(1);
    }
}

enum { THREADS = 256, TILE = 16 };

__global__ void saxpy(int n, float a, const float *x, float *y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}

__global__ void reduce(int n, const float *values, float *sums) {
    __shared__ float part[THREADS];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    part[t] = i < n ? values[i] : 0;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (t < half) part[t] += part[t + half];
        __syncthreads();
    }
    if (t == 0) sums[blockIdx.x] = part[0];
}

__global__ void multiply(int n, const float *a, const float *b, float *c) {
    __shared__ float left[TILE][TILE], right[TILE][TILE];
    int column = blockIdx.x * TILE + threadIdx.x, row = blockIdx.y * TILE + threadIdx.y;
    float sum = 0;
    for (int tile = 0; tile < n; tile += TILE) {
        left[threadIdx.y][threadIdx.x] = a[row * n + tile + threadIdx.x];
        right[threadIdx.y][threadIdx.x] = b[(tile + threadIdx.y) * n + column];
        __syncthreads();
        for (int k = 0; k < TILE; k++) sum += left[threadIdx.y][k] * right[k][threadIdx.x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}

__global__ void increment(float *counter) {
    counter[threadIdx.x] += 1;
}

// The arrays of a stream.
struct Arrays {
    cudaStream_t stream;
    float *device[3];
    std::vector<float> host;
};

static void launch(const char *workload, int size, Arrays &arrays) {
    float *x = arrays.device[0], *y = arrays.device[1], *z = arrays.device[2];
    int blocks = (size + THREADS - 1) / THREADS;
    if (strcmp(workload, "saxpy") == 0) {
        saxpy<<<blocks, THREADS, 0, arrays.stream>>>(size, 0.5f, x, y);
    } else if (strcmp(workload, "reduction") == 0) {
        reduce<<<blocks, THREADS, 0, arrays.stream>>>(size, x, y);
    } else if (strcmp(workload, "matrix") == 0) {
        multiply<<<dim3(size / TILE, size / TILE), dim3(TILE, TILE), 0, arrays.stream>>>(size, x, y, z);
    } else {
        increment<<<1, 32, 0, arrays.stream>>>(y);
    }
    require(cudaGetLastError());
}

static long peak_kib() {
    long peak = 0;
    char line[256];
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status)) sscanf(line, "VmHWM: %ld", &peak);
    if (status) fclose(status);
    return peak;
}

int main(int count, char **words) {
    if (count != 5) {
        fprintf(stderr, "usage: cost saxpy|reduction|matrix|launches SIZE STREAMS LAUNCHES\n");
        return 2;
    }
    const char *workload = words[1];
    int size = atoi(words[2]), launches = atoi(words[4]);
    bool is_matrix = strcmp(workload, "matrix") == 0;
    size_t floats = is_matrix ? (size_t)size * size : size, bytes = floats * sizeof(float);
    std::vector<Arrays> all(atoi(words[3]));
    for (Arrays &arrays : all) {
        arrays.host.assign(floats, 1);
        require(cudaStreamCreateWithFlags(&arrays.stream, cudaStreamNonBlocking));
        for (int i = 0; i < 2 + is_matrix; i++) {
            require(cudaMalloc(&arrays.device[i], bytes));
            require(cudaMemcpyAsync(arrays.device[i], arrays.host.data(), bytes, cudaMemcpyDefault, arrays.stream));
        }
    }
    for (int i = 0; i < launches; i++) {
        for (Arrays &arrays : all) launch(workload, size, arrays);
    }
    double sum = 0;
    for (Arrays &arrays : all) {
        float *from = arrays.device[is_matrix ? 2 : 1];
        require(cudaMemcpyAsync(arrays.host.data(), from, bytes, cudaMemcpyDefault, arrays.stream));
        require(cudaStreamSynchronize(arrays.stream));
        for (float value : arrays.host) sum += value;
        for (int i = 0; i < 2 + is_matrix; i++) require(cudaFree(arrays.device[i]));
        require(cudaStreamDestroy(arrays.stream));
    }
    printf("%g %ld\n", sum, peak_kib());
    return 0;
}
