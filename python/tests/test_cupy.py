"""Freehold as the allocator of CuPy. Run under `freehold run`."""

import cupy
import numpy
import pytest

import freehold
import freehold.cupy


@pytest.fixture(autouse=True)
def enabled():
    freehold.cupy.enable()
    yield
    freehold.cupy.disable()


def test_arrays_are_blocks_of_the_pool():
    before = freehold.live_bytes()
    array = cupy.empty(1000, dtype=cupy.float32)
    assert freehold.owner_of(array.data.ptr).nbytes >= 4000
    del array
    assert freehold.live_bytes() == before


def test_arithmetic_is_right():
    a = numpy.arange(1000, dtype=numpy.float32)
    x = cupy.asarray(a)
    numpy.testing.assert_allclose(cupy.asnumpy(x * 2 + 1), a * 2 + 1)


def test_a_block_is_an_array_without_a_copy():
    block = freehold.alloc(4096, zeroed=True)
    array = cupy.asarray(block)
    assert array.data.ptr == block.ptr
    array.fill(3)
    again = cupy.from_dlpack(block)
    assert again.data.ptr == block.ptr
    assert cupy.asnumpy(again).tolist() == [3] * 4096


def test_an_array_follows_the_stream_in_which_it_was_made():
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        array = cupy.empty(1 << 20, dtype=cupy.uint8)
        address = array.data.ptr
        del array
        assert cupy.empty(1 << 20, dtype=cupy.uint8).data.ptr == address


def test_a_use_in_another_stream_keeps_the_memory():
    other = cupy.cuda.Stream(non_blocking=True)
    array = cupy.arange(1 << 20, dtype=cupy.int32)
    cupy.cuda.get_current_stream().synchronize()
    with other:
        copy = array.copy()
    freehold.cupy.use_in(array, other)
    del array
    others = [cupy.full(1 << 20, -1, dtype=cupy.int32) for _ in range(4)]
    other.synchronize()
    assert int(copy[-1]) == (1 << 20) - 1
    del others


def test_too_much_memory_is_cupys_error_with_our_reason():
    freehold.set_budget(64 << 20)
    try:
        with pytest.raises(cupy.cuda.memory.OutOfMemoryError) as raised:
            cupy.empty(256 << 20, dtype=cupy.uint8)
        assert isinstance(raised.value.__cause__, freehold.OutOfMemoryError)
    finally:
        freehold.set_budget(None)


def test_disabling_returns_cupys_own_allocator():
    freehold.cupy.disable()
    before = freehold.live_bytes()
    array = cupy.empty(1000)
    assert freehold.live_bytes() == before
    del array
