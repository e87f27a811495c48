// Blocks of 1, 33 and 1000 threads: the last warp is not full.
// launch: one grid 3 block 1
// launch: few grid 2 block 33
// launch: many grid 1 block 1000
// arg: inout u32 4 value 0
// arg: out u32 100

extern "C" __global__ void one(unsigned *counts, unsigned *out) {
    __syncthreads();
    atomicAdd(counts, 1 + __popc(__activemask()));
    out[blockIdx.x] = __syncthreads_count(1);
}

extern "C" __global__ void few(unsigned *counts, unsigned *out) {
    unsigned members = threadIdx.x < 32 ? 0xffffffff : 1;
    unsigned sum = __reduce_add_sync(members, threadIdx.x);
    out[3 + blockIdx.x * 33 + threadIdx.x] = sum + __syncthreads_count(threadIdx.x % 2);
    atomicAdd(counts + 1, 1);
}

extern "C" __global__ void many(unsigned *counts, unsigned *out) {
    __shared__ unsigned sum;
    if (threadIdx.x == 999) sum = 5;
    __syncthreads();
    atomicAdd(&sum, threadIdx.x);
    __syncthreads();
    if (threadIdx.x >= 975) out[72 + threadIdx.x - 975] = sum + threadIdx.x;
    atomicAdd(counts + 2, 1);
    if (__syncthreads_or(threadIdx.x == 998)) atomicAdd(counts + 3, 1);
}
