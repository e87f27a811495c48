"""CuPy with Freehold as its allocator: products, sorts, sums and a kernel of its own are right, in two streams.

    python3 examples/python/cupy_pool.py [libfreehold.so]               (or FREEHOLD_LIBRARY=libfreehold.so)

`cargo xtask library` makes target/release/libfreehold.so.

The recipe:

    allocator = cupy.cuda.PythonFunctionAllocator(allocate, release)
    cupy.cuda.set_allocator(allocator.malloc)

with the two functions of `Freehold` below. CuPy asks with a size and a device, and gives back an address and a device;
the functions add the stream: the one that is current when a block is allocated, which has it back, whichever is current
when the array dies. (CuPy's CFunctionAllocator, which calls C directly, cannot know the stream.) Where another stream
uses an array, `use_in` says so, or the block may be handed out again before that stream is done with it.
"""

import ctypes
import os
import sys

import cupy
import numpy

SLOW = cupy.RawKernel(
    r"""
extern "C" __global__ void sum_slowly(const long long *in, long long *out, int count, int rounds) {
    long long sum = 0;
    for (int round = 0; round < rounds; round++)
        for (int at = threadIdx.x; at < count; at += blockDim.x) sum += ((const volatile long long *)in)[at];
    atomicAdd((unsigned long long *)out, (unsigned long long)sum);
}
""",
    "sum_slowly",
)


class Freehold:
    def __init__(self, path):
        library, address, size, device = ctypes.CDLL(path), ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int

        def function(name, result, *arguments):
            return ctypes.CFUNCTYPE(result, *arguments)((name, library))

        self.alloc = function("freehold_alloc", address, size, device, address)
        self.free = function("freehold_free", None, address, size, device, address)
        self.record_use = function("freehold_record_use", None, address, address)
        self.last_error = function("freehold_last_error", ctypes.c_char_p)
        self.reserved_bytes = function("freehold_reserved_bytes", ctypes.c_size_t, device)
        self.live_bytes = function("freehold_live_bytes", ctypes.c_size_t, device)
        # Size and stream of each block that CuPy has, by address.
        self.blocks = {}

    def allocate(self, size, device):
        stream = cupy.cuda.get_current_stream().ptr
        start = self.alloc(size, device, stream)
        if not start:
            raise MemoryError(self.last_error().decode())
        self.blocks[start] = (size, stream)
        return start

    def release(self, start, device):
        size, stream = self.blocks.pop(start)
        self.free(start, size, device, stream)

    def use_in(self, array, stream):
        self.record_use(array.data.mem.ptr, stream.ptr)


def check_arithmetic(random):
    """What CuPy computes is what NumPy computes."""
    for size in (7, 300, 1000):
        a, b = random.random((size, size)), random.random((size, size))
        x, y = cupy.asarray(a), cupy.asarray(b)
        numpy.testing.assert_allclose(cupy.asnumpy(x @ y), a @ b, rtol=1e-10)
        numpy.testing.assert_array_equal(cupy.asnumpy(cupy.sort(x, axis=0)), numpy.sort(a, axis=0))
        numpy.testing.assert_allclose(float((x * 2 + y).sum()), (a * 2 + b).sum(), rtol=1e-10)


def check_streams(freehold, random):
    """An array that dies while another stream reads it keeps its contents until that stream is done."""
    here, there = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
    for _ in range(20):
        host = random.integers(0, 1000, size=200_000)
        with here:
            numbers = cupy.asarray(host)
            filled = here.record()
        there.wait_event(filled)
        with there:
            total = cupy.zeros(1, dtype=numpy.int64)
            SLOW((1,), (256,), (numbers, total, numpy.int32(numbers.size), numpy.int32(50)))
        freehold.use_in(numbers, there)
        del numbers
        with here:
            # Of the same size: they would lie in the same place, and be read instead.
            others = [cupy.full(host.size, -1, dtype=numpy.int64) for _ in range(4)]
        assert int(total.get(stream=there)[0]) == 50 * int(host.sum())
        here.synchronize()
        assert all(int(other.min()) == -1 for other in others)


def main():
    path = sys.argv[1] if len(sys.argv) == 2 else os.environ.get("FREEHOLD_LIBRARY", "")
    if not os.path.isfile(path):
        print(f"{path!r} is no file: name libfreehold.so as the argument or in FREEHOLD_LIBRARY", file=sys.stderr)
        sys.exit(2)
    # Makes the device's context, which an allocator from outside finds there.
    cupy.cuda.Device(0).synchronize()
    freehold = Freehold(os.path.abspath(path))
    cupy.cuda.set_allocator(cupy.cuda.PythonFunctionAllocator(freehold.allocate, freehold.release).malloc)
    random = numpy.random.default_rng(1)
    check_arithmetic(random)
    check_streams(freehold, random)
    cupy.cuda.Device(0).synchronize()
    print(f"all results are right; {freehold.live_bytes(0)} bytes live, {freehold.reserved_bytes(0)} reserved")


main()
