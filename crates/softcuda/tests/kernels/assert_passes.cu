// assert of what is true does nothing.
// launch: assert_passes grid 2 block 32
// arg: out u32 64

extern "C" __global__ void assert_passes(unsigned *out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    assert(i < 64);
    out[i] = i;
    assert(out[i] == i);
}
