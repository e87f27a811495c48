// Shuffles, votes and matches among the lanes of a mask, while the others do the same among themselves.
// launch: shfl_partial grid 1 block 32
// arg: out u32 256
// arg: in u32 32 random 60

extern "C" __global__ void shfl_partial(unsigned *out, const unsigned *in) {
    unsigned i = threadIdx.x, x = in[i];
    if (i % 3 == 0) {
        const unsigned mask = 0x49249249;
        out[i] = __shfl_sync(mask, x, 9);
        out[32 + i] = __ballot_sync(mask, x & 1);
        out[64 + i] = __any_sync(mask, x == 7);
        out[96 + i] = __all_sync(mask, x != 7);
        out[128 + i] = __match_any_sync(mask, x % 4);
        out[160 + i] = __shfl_sync(mask, x, i < 15 ? 3 : 30);
    } else {
        const unsigned mask = 0xb6db6db6;
        out[i] = __shfl_sync(mask, x, 10);
        out[32 + i] = __ballot_sync(mask, x & 2);
        out[64 + i] = __any_sync(mask, x % 5 == 0);
        out[96 + i] = __all_sync(mask, x % 5 != 0);
        out[128 + i] = __match_any_sync(mask, x % 3);
        out[160 + i] = __shfl_up_sync(mask, x, 3);
    }
    __syncwarp();
    out[192 + i] = __activemask() >> i & 1;
    out[224 + i] = __shfl_down_sync(0xffffffff, x, 1);
}
