// Sorts a block's words by two bits a pass, stably: votes count the zeros before a lane.
// launch: radix_pass grid 1 block 128
// arg: out u32 128
// arg: in u32 128 random 38

extern "C" __global__ void radix_pass(unsigned *out, const unsigned *in) {
    __shared__ unsigned words[128], zeros[4];
    unsigned thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    words[thread] = in[thread] & 0xffff;
    for (unsigned bit = 0; bit < 16; bit++) {
        __syncthreads();
        unsigned word = words[thread], is_zero = !(word >> bit & 1);
        unsigned ballot = __ballot_sync(0xffffffff, is_zero);
        if (lane == 0) zeros[warp] = __popc(ballot);
        __syncthreads();
        unsigned before = __popc(ballot & ((1u << lane) - 1)), all = 0;
        for (unsigned w = 0; w < 4; w++) {
            if (w < warp) before += zeros[w];
            all += zeros[w];
        }
        words[is_zero ? before : all + thread - before] = word;
    }
    __syncthreads();
    out[thread] = words[thread];
}
