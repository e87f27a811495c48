// One multiplication and one addition an element, with a partial last block.
// launch: saxpy grid 4 block 128
// arg: inout f32 500 random 1
// arg: in f32 500 random 2
// arg: value f32 2.5
// arg: value u32 500

extern "C" __global__ void saxpy(float *y, const float *x, float a, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
