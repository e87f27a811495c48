// Shuffles of other things than words: doubles, 64-bit integers, pairs of f16 and bytes.
// launch: shfl_types grid 1 block 32
// arg: out f64 32
// arg: out u64 32
// arg: out f16x2 32
// arg: out u8 32
// arg: in f64 32 random 130
// arg: in u64 32 noise 131

#include <cuda_fp16.h>

extern "C" __global__ void shfl_types(double *d, unsigned long long *l, __half2 *h, unsigned char *b, const double *x,
                                      const unsigned long long *y) {
    unsigned i = threadIdx.x;
    d[i] = __shfl_sync(~0u, x[i], 31 - i);
    l[i] = __shfl_up_sync(~0u, y[i], 4) + __shfl_down_sync(~0u, (long long)y[i], 4);
    h[i] = __shfl_xor_sync(~0u, __floats2half2_rn((float)x[i], i), 5);
    b[i] = (unsigned char)__shfl_sync(~0u, (unsigned char)y[i], i / 4, 8);
}
