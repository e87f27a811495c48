# saxpy as Numba compiles it: an array is seven arguments, and names are long.
# launch: kernel grid 4 block 64
# arg: value u64 0
# arg: value u64 0
# arg: value s64 200
# arg: value s64 4
# arg: inout f32 200 random 90
# arg: value s64 200
# arg: value s64 4
# arg: value u64 0
# arg: value u64 0
# arg: value s64 200
# arg: value s64 4
# arg: in f32 200 random 91
# arg: value s64 200
# arg: value s64 4
# arg: value f32 0.75

from numba import cuda, float32

TYPES = (float32[::1], float32[::1], float32)


def kernel(y, x, a):
    i = cuda.grid(1)
    if i < y.size:
        y[i] = a * x[i] + y[i]
