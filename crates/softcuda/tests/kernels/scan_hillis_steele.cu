// A running sum of a block in logarithmic steps, each between two barriers.
// launch: scan_hillis_steele grid 1 block 200
// arg: out u32 200
// arg: in u32 200 random 32

extern "C" __global__ void scan_hillis_steele(unsigned *out, const unsigned *in) {
    __shared__ unsigned buffer[2][200];
    unsigned thread = threadIdx.x, now = 0;
    buffer[0][thread] = in[thread];
    __syncthreads();
    for (unsigned offset = 1; offset < blockDim.x; offset *= 2) {
        unsigned value = buffer[now][thread];
        if (thread >= offset) value += buffer[now][thread - offset];
        buffer[1 - now][thread] = value;
        now = 1 - now;
        __syncthreads();
    }
    out[thread] = buffer[now][thread];
}
