"""A kernel with a barrier, and its test."""

import numpy
from numba import cuda, float32

THREADS = 64


@cuda.jit
def totals(numbers, sums):
    """Adds up the numbers of each block."""
    part = cuda.shared.array(THREADS, float32)
    thread = cuda.threadIdx.x
    part[thread] = numbers[cuda.grid(1)]
    cuda.syncthreads()
    step = THREADS // 2
    while step > 0:
        if thread < step:
            part[thread] += part[thread + step]
        cuda.syncthreads()
        step //= 2
    if thread == 0:
        sums[cuda.blockIdx.x] = part[0]


def test_each_block_adds_up_its_numbers():
    numbers = numpy.arange(4 * THREADS, dtype=numpy.float32)
    sums = cuda.device_array(4, dtype=numpy.float32)
    totals[4, THREADS](cuda.to_device(numbers), sums)
    numpy.testing.assert_allclose(sums.copy_to_host(), numbers.reshape(4, THREADS).sum(axis=1))
