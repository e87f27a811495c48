"""Typed arrays, DLPack and __cuda_array_interface__ without another library. Run under `freehold run`."""

import gc

import pytest

import freehold

MIB = 1 << 20


class Interface:
    """An array of a library that has only __cuda_array_interface__."""

    def __init__(self, block, **changes):
        self.__cuda_array_interface__ = {
            "shape": (4,),
            "typestr": "<f4",
            "data": (block.ptr, False),
            "version": 3,
            **changes,
        }


def test_a_view_of_a_block_has_a_type_and_a_shape():
    block = freehold.alloc(1024)
    array = block.view("float32", (3, 4), offset=64)
    assert (array.ptr, array.nbytes, array.size, array.ndim) == (block.ptr + 64, 48, 12, 2)
    assert (array.shape, array.strides, array.dtype, array.device) == ((3, 4), (16, 4), "float32", 0)
    assert len(array) == 3
    assert repr(array) == f"<freehold.Array of float32 (3, 4) at {array.ptr:#x}, device 0, in a block of 1 KiB>"
    assert block.view("<u2").shape == (512,)
    assert block.view("int64", 5).shape == (5,)
    assert block.view("bool", ()).nbytes == 1


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (("float33",), TypeError, "float33 is not an element type"),
        (("float32", (257,)), ValueError, "1028 bytes from byte 0 on do not fit in 1024 bytes"),
        (("float32", (-1,)), ValueError, "no negative lengths"),
        (("float32", (1 << 40, 1 << 40)), ValueError, "more elements"),
    ],
)
def test_a_view_that_does_not_fit_is_one_sentence(arguments, error, text):
    block = freehold.alloc(1024)
    with pytest.raises(error, match=text):
        block.view(*arguments)
    with pytest.raises(ValueError, match="byte 2 is not aligned for float32"):
        block.view("float32", offset=2)


def test_memory_in_use_is_neither_freed_nor_moved():
    block = freehold.alloc(1024)
    array = block.view("float32")
    capsule = array.__dlpack__()
    for use in (block.free, lambda: block.resize(4096)):
        with pytest.raises(BufferError, match="2 arrays use the block: delete them first"):
            use()
    del array
    with pytest.raises(BufferError, match="1 array uses the block"):
        block.free()
    del capsule
    block.free()


def test_an_array_keeps_the_memory_of_its_block():
    block = freehold.alloc(MIB)
    address, array = block.ptr, block.view("int8")
    del block
    gc.collect()
    assert freehold.owner_of(address).is_live
    del array
    assert not freehold.owner_of(address).is_live


def test_a_capsule_is_consumed_once():
    block = freehold.alloc(4096)
    capsule = block.view("float32", (8, 16)).__dlpack__(max_version=(1, 0))
    array = freehold.from_dlpack(capsule)
    assert (array.ptr, array.shape, array.strides, array.dtype) == (block.ptr, (8, 16), (64, 4), "float32")
    assert "used_dltensor_versioned" in repr(capsule)
    with pytest.raises(ValueError, match="consumed before"):
        freehold.from_dlpack(capsule)
    del array
    block.free()


def test_both_kinds_of_capsules_are_understood():
    block = freehold.alloc(4096)
    for version in (None, (0, 8), (1, 0), (2, 0)):
        array = freehold.from_dlpack(block.view("bfloat16").__dlpack__(max_version=version))
        assert (array.ptr, array.shape, array.dtype) == (block.ptr, (2048,), "bfloat16")


@pytest.mark.parametrize("name", ["int8", "uint16", "int64", "float16", "float64", "complex64", "complex128", "bool"])
def test_a_type_survives_both_protocols(name):
    array = freehold.alloc(4096).view(name)
    assert freehold.from_dlpack(array).dtype == name
    assert freehold.asarray(array).dtype == name


def test_a_type_that_numpy_lacks_has_no_interface():
    array = freehold.alloc(64).view("bfloat16")
    assert not hasattr(array, "__cuda_array_interface__")
    assert freehold.asarray(array).dtype == "bfloat16"


@pytest.mark.parametrize(("stream", "waits"), [(None, True), (1, True), (2, True), (-1, False)])
def test_a_consumer_waits_for_the_blocks_stream(driver, stream, waits):
    own = driver.stream()
    block = freehold.alloc(MIB, stream=own)
    driver.synchronize()
    open_gate = driver.gate(own)
    block.__dlpack__(stream=stream)
    assert driver.is_idle(stream if stream == 2 else 0) is not waits
    open_gate()
    driver.synchronize()


def test_a_consumer_with_a_handle_waits_and_keeps_the_memory(driver):
    own, consumer = driver.stream(), driver.stream()
    block = freehold.alloc(MIB, stream=own)
    address = block.ptr
    open_producer = driver.gate(own)
    block.__dlpack__(stream=consumer)
    assert not driver.is_idle(consumer)
    open_producer()
    driver.synchronize()
    open_consumer = driver.gate(consumer)
    block.free()
    assert address not in [other.ptr for other in [freehold.alloc(MIB, stream=own) for _ in range(8)]]
    open_consumer()


@pytest.mark.parametrize("stream", [0, -2])
def test_a_stream_that_the_standard_excludes_is_refused(stream):
    with pytest.raises(ValueError, match="stream"):
        freehold.alloc(64).__dlpack__(stream=stream)


def test_memory_read_through_the_interface_waits_for_all_work(driver):
    other = driver.stream()
    block = freehold.alloc(MIB)
    address = block.ptr
    assert block.__cuda_array_interface__["stream"] == 1
    open_gate = driver.gate(other)
    del block
    assert address not in [kept.ptr for kept in [freehold.alloc(MIB) for _ in range(8)]]
    open_gate()
    driver.synchronize()


@pytest.mark.parametrize(("theirs", "waits"), [(None, False), (1, True), ("handle", True)])
def test_an_imported_array_waits_for_the_stream_of_its_interface(driver, theirs, waits):
    producer, mine = driver.stream(), driver.stream()
    block = freehold.alloc(MIB)
    open_gate = driver.gate(producer if theirs == "handle" else 0)
    array = freehold.asarray(Interface(block, stream=producer if theirs == "handle" else theirs), stream=mine)
    assert array.ptr == block.ptr
    assert driver.is_idle(mine) is not waits
    open_gate()
    driver.synchronize()


def test_an_imported_array_orders_its_own_consumers(driver):
    mine, consumer = driver.stream(), driver.stream()
    block = freehold.alloc(MIB)
    array = freehold.from_dlpack(block, stream=mine)
    open_gate = driver.gate(mine)
    array.__dlpack__(stream=consumer)
    assert not driver.is_idle(consumer)
    open_gate()
    driver.synchronize()


def test_a_producer_gets_its_memory_back_after_the_work_of_all_consumers(driver):
    producer, consumer = driver.stream(), driver.stream()
    block = freehold.alloc(MIB, stream=producer)
    array = freehold.from_dlpack(block, stream=producer)
    array.__dlpack__(stream=consumer)
    driver.synchronize()
    open_gate = driver.gate(consumer)
    assert driver.is_idle(producer)
    del array
    assert not driver.is_idle(producer)
    open_gate()
    driver.synchronize()


def test_strides_are_kept():
    block = freehold.alloc(4096)
    array = freehold.asarray(Interface(block, shape=(4, 3), strides=(4, 16)))
    assert (array.shape, array.strides, array.nbytes) == ((4, 3), (4, 16), 48)
    again = freehold.from_dlpack(array)
    assert again.strides == (4, 16)
    assert array.__cuda_array_interface__["strides"] == (4, 16)
    assert "strides" not in block.view("float32", (4, 3)).__cuda_array_interface__


def test_a_read_only_array_stays_one():
    block = freehold.alloc(64)
    array = freehold.asarray(Interface(block, data=(block.ptr, True)))
    assert array.is_read_only and "read-only" in repr(array)
    assert array.__cuda_array_interface__["data"] == (block.ptr, True)
    assert freehold.from_dlpack(array).is_read_only
    with pytest.raises(BufferError, match="read-only"):
        array.__dlpack__()


class OnTheHost:
    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **arguments):
        raise AssertionError("it is asked for its device first")


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"mask": object()}, BufferError, "mask"),
        ({"typestr": ">f4"}, TypeError, ">f4 is not an element type"),
        ({"strides": (2,)}, ValueError, "not whole elements"),
        ({"strides": (4, 4)}, ValueError, "2 strides were given for 1 dimensions"),
        ({"stream": 0}, ValueError, "ambiguous"),
    ],
)
def test_an_unusable_interface_is_one_sentence(change, error, text):
    block = freehold.alloc(64)
    with pytest.raises(error, match=text):
        freehold.asarray(Interface(block, **change))


def test_what_is_no_array_of_a_device_is_refused():
    with pytest.raises(TypeError, match="list is not an array of a device"):
        freehold.from_dlpack([1, 2])
    with pytest.raises(TypeError, match="list is not an array of a device"):
        freehold.asarray([1, 2])
    with pytest.raises(BufferError, match="the host's, not CUDA memory"):
        freehold.from_dlpack(OnTheHost())
