"""A pool in Python that announces its blocks: one is freed in one stream while another stream still reads it, and handed out again.

With `fixed` as an argument, the pool makes the stream wait for the reader. `without` says that there is no checker, and nothing is
announced.
"""

import ctypes
import importlib.util
import sys
from pathlib import Path

# From the clone, where the rest of the package is not compiled.
file = Path(__file__).parents[4] / "python/freehold/check.py"
spec = importlib.util.spec_from_file_location("check", file)
check = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check)

SIZE = 4096

cuda = ctypes.CDLL("libcuda.so.1")

def must(result):
    assert result == 0, result


def made(function, *arguments):
    handle = ctypes.c_void_p()
    must(getattr(cuda, function)(ctypes.byref(handle), *arguments))
    return handle


class Pool:
    """A pool with one block."""

    def __init__(self):
        self.block = made("cuMemAlloc_v2", ctypes.c_size_t(SIZE)).value
        self.event = made("cuEventCreate", 2)

    def allocate(self, stream):
        check.handed_out(self, self.block, SIZE, stream.value)
        return ctypes.c_uint64(self.block)

    def record_use(self, stream):
        check.used(self, self.block, stream.value)
        must(cuda.cuEventRecord(self.event, stream))

    def free(self, stream, is_used):
        check.freed(self, self.block, stream.value)
        if is_used:
            must(cuda.cuStreamWaitEvent(stream, self.event, 0))


must(cuda.cuInit(0))
must(cuda.cuCtxSetCurrent(made("cuDevicePrimaryCtxRetain", 0)))
assert check.is_checked() == ("without" not in sys.argv)
first, second = made("cuStreamCreate", 1), made("cuStreamCreate", 1)
pool, copy = Pool(), ctypes.c_uint64(made("cuMemAlloc_v2", ctypes.c_size_t(SIZE)).value)

block = pool.allocate(first)
must(cuda.cuMemsetD8Async(block, 1, ctypes.c_size_t(SIZE), first))
must(cuda.cuStreamSynchronize(first))
must(cuda.cuMemcpyDtoDAsync_v2(copy, block, ctypes.c_size_t(SIZE), second))
pool.record_use(second)
pool.free(first, is_used="fixed" in sys.argv)

again = pool.allocate(first)
must(cuda.cuMemsetD8Async(again, 2, ctypes.c_size_t(SIZE), first))
pool.free(first, is_used=False)
must(cuda.cuCtxSynchronize())
print("done")
