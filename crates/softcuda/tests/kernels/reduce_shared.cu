// A sum of a block by halves in shared memory, whose size comes with the launch.
// launch: reduce_shared grid 4 block 128 shared 512
// arg: out u32 4
// arg: in u32 512 random 29

extern "C" __global__ void reduce_shared(unsigned *sums, const unsigned *values) {
    extern __shared__ unsigned part[];
    unsigned thread = threadIdx.x;
    part[thread] = values[blockIdx.x * blockDim.x + thread];
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        if (thread < half) part[thread] += part[thread + half];
        __syncthreads();
    }
    if (thread == 0) sums[blockIdx.x] = part[0];
}
