// Lane 31 sets what lane 0 of the same warp spins on, and each lane waits for the next one.
// launch: flags_between_lanes grid 1 block 32
// arg: out u32 32

extern "C" __global__ void flags_between_lanes(unsigned *out) {
    __shared__ volatile unsigned flags[33];
    unsigned i = threadIdx.x;
    flags[i] = 0;
    if (i == 0) flags[32] = 1;
    __syncwarp();
    while (flags[i + 1] == 0) {}
    flags[i] = flags[i + 1] + i;
    out[i] = flags[i];
}
