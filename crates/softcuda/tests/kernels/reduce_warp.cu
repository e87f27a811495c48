// A sum by shuffles within warps and one word of shared memory a warp.
// launch: reduce_warp grid 2 block 256
// arg: out s32 2
// arg: in s32 512 random 30

__device__ int warp_sum(int value) {
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_down_sync(0xffffffff, value, offset);
    return value;
}

extern "C" __global__ void reduce_warp(int *sums, const int *values) {
    __shared__ int part[8];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int sum = warp_sum(values[blockIdx.x * blockDim.x + threadIdx.x]);
    if (lane == 0) part[warp] = sum;
    __syncthreads();
    if (warp == 0) {
        sum = warp_sum(lane < 8 ? part[lane] : 0);
        if (lane == 0) sums[blockIdx.x] = sum;
    }
}
