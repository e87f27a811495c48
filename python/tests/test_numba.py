"""Freehold as the memory manager of Numba-CUDA. Run under `freehold run`."""

import numpy
import pytest
from numba import cuda

import freehold
import freehold.numba


@pytest.fixture(scope="module", autouse=True)
def managed():
    cuda.set_memory_manager(freehold.numba.Manager)


@cuda.jit
def add_one(array):
    index = cuda.grid(1)
    if index < array.size:
        array[index] += 1


def test_arrays_are_blocks_of_the_pool():
    array = cuda.device_array(1000, dtype=numpy.float32)
    owner = freehold.owner_of(array.device_ctypes_pointer.value)
    assert (owner.nbytes, owner.is_live) == (4000, True)


def test_kernels_run_on_them():
    array = cuda.to_device(numpy.arange(1000, dtype=numpy.int32))
    add_one[8, 128](array)
    assert array.copy_to_host().tolist() == list(range(1, 1001))


def test_memory_is_not_reused_before_work_in_any_stream_is_done():
    one, other = cuda.stream(), cuda.stream()
    count = 1 << 14
    results = []
    for value in range(20):
        source, host = (cuda.pinned_array(count, dtype=numpy.int32) for _ in range(2))
        source[:] = value
        array = cuda.device_array(count, dtype=numpy.int32)
        array.copy_to_device(source, stream=one)
        add_one[count // 128, 128, one](array)
        array.copy_to_host(host, stream=one)
        results.append((value, source, host))
        del array
        cuda.current_context().deallocations.clear()
        # Of the same size, and written in a stream that waits for nothing.
        late = cuda.device_array(count, dtype=numpy.int32)
        add_one[count // 128, 128, other](late)
        results.append((None, late, None))
    cuda.synchronize()
    for value, _, host in results:
        assert value is None or (host == value + 1).all(), value


def test_memory_is_free_when_its_work_is_done():
    array = cuda.device_array(1 << 20, dtype=numpy.uint8)
    address = array.device_ctypes_pointer.value
    del array
    cuda.current_context().deallocations.clear()
    cuda.synchronize()
    again = [cuda.device_array(1 << 20, dtype=numpy.uint8) for _ in range(8)]
    assert address in [other.device_ctypes_pointer.value for other in again]


def test_the_driver_tells_how_much_memory_there_is():
    free, total = cuda.current_context().get_memory_info()
    assert 0 < free <= total


def test_handles_of_cuda_are_refused_with_what_to_do():
    array = cuda.device_array(1000)
    with pytest.raises(OSError, match="broker"):
        array.get_ipc_handle()
