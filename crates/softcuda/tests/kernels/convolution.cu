// An image through a kernel of 5 by 5 in constant memory that is zero until it is filled, with a rim in shared memory.
// launch: fill grid 1 block 25
// launch: convolution grid 2x2 block 16x16
// arg: out f32 1024
// arg: in f32 1024 random 107

__constant__ float weights[5][5];
__device__ float weights_made[25];

extern "C" __global__ void fill(float *, const float *) {
    weights_made[threadIdx.x] = (threadIdx.x + 1) * 0.0625f;
}

extern "C" __global__ void convolution(float *out, const float *in) {
    __shared__ float tile[20][20];
    int x0 = blockIdx.x * 16 - 2, y0 = blockIdx.y * 16 - 2;
    for (int k = threadIdx.y * 16 + threadIdx.x; k < 400; k += 256) {
        int x = x0 + k % 20, y = y0 + k / 20;
        tile[k / 20][k % 20] = x >= 0 && x < 32 && y >= 0 && y < 32 ? in[y * 32 + x] : 0;
    }
    __syncthreads();
    float sum = 0;
    for (int dy = 0; dy < 5; dy++)
        for (int dx = 0; dx < 5; dx++)
            sum += tile[threadIdx.y + dy][threadIdx.x + dx] * (weights_made[dy * 5 + dx] + weights[dy][dx]);
    out[(blockIdx.y * 16 + threadIdx.y) * 32 + blockIdx.x * 16 + threadIdx.x] = sum;
}
