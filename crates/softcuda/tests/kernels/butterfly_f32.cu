// A sum of f32 by exchanges within a warp: the order is fixed, so are the bits.
// launch: butterfly_f32 grid 1 block 64
// arg: out f32 128
// arg: in f32 64 random 112

extern "C" __global__ void butterfly_f32(float *out, const float *in) {
    unsigned i = threadIdx.x;
    float sum = in[i];
    double wide = sum;
    for (unsigned mask = 16; mask; mask /= 2) {
        sum += __shfl_xor_sync(0xffffffff, sum, mask);
        wide += __shfl_xor_sync(0xffffffff, wide, mask);
    }
    out[i] = sum;
    out[64 + i] = (float)wide;
}
