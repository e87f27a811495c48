// Keeps the elements that pass, in order, by the votes of a warp and the sums of warps.
// launch: compaction grid 1 block 256
// arg: out u32 256
// arg: out u32 1
// arg: in u32 256 random 47

extern "C" __global__ void compaction(unsigned *out, unsigned *count, const unsigned *in) {
    __shared__ unsigned kept[8];
    unsigned thread = threadIdx.x, lane = thread % 32, warp = thread / 32, value = in[thread];
    bool keep = value % 3 == 0;
    unsigned ballot = __ballot_sync(0xffffffff, keep);
    if (lane == 0) kept[warp] = __popc(ballot);
    __syncthreads();
    unsigned before = __popc(ballot & ((1u << lane) - 1));
    for (unsigned w = 0; w < warp; w++) before += kept[w];
    if (keep) out[before] = value;
    if (thread == 255) *count = before + keep;
}
