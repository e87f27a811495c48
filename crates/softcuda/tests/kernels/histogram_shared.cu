// Counts in shared memory first, then one addition a bin and block.
// compile: compute_80
// launch: histogram_shared grid 3 block 96
// arg: inout u32 256 value 0
// arg: in u8 3000 random 36
// arg: value u32 3000

extern "C" __global__ void histogram_shared(unsigned *counts, const unsigned char *bytes, unsigned n) {
    __shared__ unsigned own[256];
    for (unsigned bin = threadIdx.x; bin < 256; bin += blockDim.x) own[bin] = 0;
    __syncthreads();
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&own[bytes[i]], 1);
    __syncthreads();
    for (unsigned bin = threadIdx.x; bin < 256; bin += blockDim.x) atomicAdd(&counts[bin], own[bin]);
}
