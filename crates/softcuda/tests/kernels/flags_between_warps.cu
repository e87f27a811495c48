// Warps of a block that run one after the other, by a volatile flag in shared memory.
// launch: flags_between_warps grid 1 block 160
// arg: out u32 5

extern "C" __global__ void flags_between_warps(unsigned *out) {
    __shared__ volatile unsigned turn, value;
    unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) turn = 0, value = 1;
    __syncthreads();
    if (lane == 0) {
        while (turn != 4 - warp) {}
        __threadfence_block();
        value = value * 10 + warp;
        out[warp] = value;
        __threadfence_block();
        turn = turn + 1;
    }
}
