// A grid and blocks of three dimensions write where they are.
// launch: shapes_3d grid 3x2x2 block 4x3x2
// arg: out u32 288

extern "C" __global__ void shapes_3d(unsigned *out) {
    unsigned x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    unsigned z = blockIdx.z * blockDim.z + threadIdx.z;
    out[x + 12 * (y + 6 * z)] = x * 10000 + y * 100 + z;
}
