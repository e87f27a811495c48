// Turns a matrix through a tile with a column too many.
// launch: transpose grid 2x3 block 16x8
// arg: out u32 1536
// arg: in u32 1536 iota

extern "C" __global__ void transpose(unsigned *out, const unsigned *in) {
    __shared__ unsigned tile[16][17];
    const unsigned width = 32, height = 48;
    unsigned x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    for (unsigned row = 0; row < 16; row += 8) tile[threadIdx.y + row][threadIdx.x] = in[(y + row) * width + x];
    __syncthreads();
    x = blockIdx.y * 16 + threadIdx.x;
    y = blockIdx.x * 16 + threadIdx.y;
    for (unsigned row = 0; row < 16; row += 8) out[(y + row) * height + x] = tile[threadIdx.x][threadIdx.y + row];
}
