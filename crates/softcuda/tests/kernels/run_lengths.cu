// Runs of equal bytes: where they start by a vote, how long they are by the next start.
// compile: cuda13 compute_80
// launch: run_lengths grid 1 block 64
// arg: out u32 64
// arg: out u32 1
// arg: in u8 64 random 110

extern "C" __global__ void run_lengths(unsigned *out, unsigned *count, const unsigned char *in) {
    __shared__ unsigned starts[65], heads[2];
    unsigned i = threadIdx.x, lane = i % 32, warp = i / 32, value = in[i] / 96;
    bool head = i == 0 || in[i - 1] / 96 != value;
    unsigned ballot = __ballot_sync(0xffffffff, head);
    if (lane == 0) heads[warp] = __popc(ballot);
    __syncthreads();
    unsigned place = __popc(ballot & (2u << lane) - 1) - 1 + (warp ? heads[0] : 0), all = heads[0] + heads[1];
    if (head) starts[place] = i;
    if (i == 0) starts[all] = 64;
    __syncthreads();
    if (head) out[place] = value << 16 | (starts[place + 1] - i);
    if (i == 0) *count = all;
}
