// A sum over blocks: the block that is done last, by a counter, adds up what the others left.
// launch: reduce_last_block grid 8 block 64
// arg: out u64 1
// arg: in u32 4096 random 31
// arg: inout u64 8 value 0
// arg: inout u32 1 value 0

extern "C" __global__ void reduce_last_block(unsigned long long *total, const unsigned *values,
                                             volatile unsigned long long *parts, unsigned *done) {
    __shared__ unsigned long long sum[64];
    __shared__ bool last;
    unsigned long long own = 0;
    for (unsigned i = blockIdx.x * 64 + threadIdx.x; i < 4096; i += gridDim.x * 64) own += values[i];
    sum[threadIdx.x] = own;
    __syncthreads();
    for (int half = 32; half > 0; half /= 2) {
        if (threadIdx.x < half) sum[threadIdx.x] += sum[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = sum[0];
        __threadfence();
        last = atomicAdd(done, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        __threadfence();
        unsigned long long all = 0;
        for (unsigned block = 0; block < gridDim.x; block++) all += parts[block];
        *total = all;
    }
}
