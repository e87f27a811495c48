// Counts by atomic additions to global memory.
// launch: histogram_global grid 4 block 64
// arg: inout u32 64 value 0
// arg: in u8 2048 random 35
// arg: value u32 2048

extern "C" __global__ void histogram_global(unsigned *counts, const unsigned char *bytes, unsigned n) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&counts[bytes[i] / 4], 1);
}
