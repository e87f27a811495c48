# A sum in Numba's shared memory, with a barrier, an atomic and numbers of 64 bits.
# launch: kernel grid 3 block 64
# arg: value u64 0
# arg: value u64 0
# arg: value s64 1
# arg: value s64 8
# arg: inout s64 1 value 0
# arg: value s64 1
# arg: value s64 8
# arg: value u64 0
# arg: value u64 0
# arg: value s64 150
# arg: value s64 4
# arg: in s32 150 random 92
# arg: value s64 150
# arg: value s64 4

from numba import cuda, int32, int64

TYPES = (int64[::1], int32[::1])


def kernel(total, values):
    part = cuda.shared.array(64, int64)
    thread = cuda.threadIdx.x
    i = cuda.grid(1)
    part[thread] = values[i] if i < values.size else 0
    half = 32
    while half > 0:
        cuda.syncthreads()
        if thread < half:
            part[thread] += part[thread + half]
        half //= 2
    if thread == 0:
        cuda.atomic.add(total, 0, part[0])
