// A loop over the grid's stride, compiled for an old architecture.
// compile: compute_75
// launch: vector_add grid 3 block 64
// arg: out s32 1000
// arg: in s32 1000 random 3
// arg: in s32 1000 random 4
// arg: value s32 1000

extern "C" __global__ void vector_add(int *sum, const int *a, const int *b, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum[i] = a[i] + b[i];
}
