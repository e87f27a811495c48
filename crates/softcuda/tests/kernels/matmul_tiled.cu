// A product of matrices in tiles of shared memory.
// launch: matmul_tiled grid 2x2 block 16x16
// arg: out f32 1024
// arg: in f32 1024 random 27
// arg: in f32 1024 random 28
// arg: value s32 32

#define TILE 16

extern "C" __global__ void matmul_tiled(float *c, const float *a, const float *b, int n) {
    __shared__ float left[TILE][TILE], right[TILE][TILE];
    int x = threadIdx.x, y = threadIdx.y, column = blockIdx.x * TILE + x, row = blockIdx.y * TILE + y;
    float sum = 0;
    for (int tile = 0; tile < n / TILE; tile++) {
        left[y][x] = a[row * n + tile * TILE + x];
        right[y][x] = b[(tile * TILE + y) * n + column];
        __syncthreads();
        for (int k = 0; k < TILE; k++) sum += left[y][k] * right[k][x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}
