// setmaxnreg: one group of warps gives registers that two others take; their values stay.
// compile: compute_90a
// launch: setmaxnreg grid 1 block 384
// arg: out u32 6144

__device__ unsigned noise(unsigned i) {
    i = (i + 1) * 2654435761u;
    i = (i ^ i >> 15) * 2246822519u;
    return i ^ i >> 13;
}

extern "C" __global__ void __launch_bounds__(384, 1) setmaxnreg(unsigned *out) {
    unsigned t = threadIdx.x, kept[16];
    for (int j = 0; j < 16; j++) kept[j] = noise(j * 384 + t);
    if (t < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        for (int j = 1; j < 16; j++) kept[j] += kept[j - 1];
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        for (int j = 1; j < 16; j++) kept[j] ^= kept[j - 1] * 3;
    }
    for (int j = 0; j < 16; j++) out[j * 384 + t] = kept[j];
}
