"""Vectors that grow at a fixed address. Run under `freehold run`."""

import gc

import pytest

import freehold

MIB = 1 << 20


def test_a_vector_grows_at_its_address(driver):
    vector = freehold.DeviceVec("int8")
    assert (len(vector), vector.nbytes, vector.dtype, vector.device) == (0, 0, "int8", 0)
    vector.resize(100)
    address = vector.ptr
    driver.fill(vector.view(), 7, 0)
    vector.resize(20 * MIB)
    assert (vector.ptr, len(vector)) == (address, 20 * MIB)
    assert vector.capacity >= 20 * MIB
    assert driver.read(vector.view(100)) == bytes([7]) * 100
    assert repr(vector) == f"<freehold.DeviceVec of 20971520 int8 (20 MiB) at {address:#x}, device 0>"


def test_growth_waits_for_no_work(driver):
    stream = driver.stream()
    vector = freehold.DeviceVec("float32")
    vector.resize(10)
    open_gate = driver.gate(stream)
    vector.resize(4 * MIB)
    assert not driver.is_idle(stream)
    open_gate()


def test_arrays_stay_valid_when_a_vector_grows(driver):
    vector = freehold.DeviceVec("uint8")
    vector.resize(64)
    array = vector.view()
    vector.resize(8 * MIB)
    driver.fill(array, 5, 0)
    assert driver.read(vector.view(64)) == bytes([5]) * 64
    assert vector.view((2, 8), offset=16).ptr == vector.ptr + 16


def test_memory_beyond_the_elements_goes_back_after_all_work(driver):
    driver.synchronize()
    freehold.trim()
    before, stream = freehold.reserved_bytes(), driver.stream()
    vector = freehold.DeviceVec("uint8")
    vector.resize(1)
    vector.resize(64 * MIB)
    capacity = vector.capacity
    vector.resize(1)
    assert vector.capacity == capacity
    open_gate = driver.gate(stream)
    vector.shrink_to_fit()
    assert vector.capacity < capacity
    freehold.trim()
    assert freehold.reserved_bytes() - before >= 64 * MIB
    open_gate()
    driver.synchronize()
    del vector
    # Its memory waits for the work so far.
    driver.synchronize()
    freehold.trim()
    assert freehold.reserved_bytes() <= before


def test_a_vector_in_use_keeps_its_memory(driver):
    vector = freehold.DeviceVec("uint8")
    vector.resize(64)
    array = vector.view()
    for use in (vector.free, vector.shrink_to_fit):
        with pytest.raises(BufferError, match="1 array uses the vector"):
            use()
    del vector
    gc.collect()
    driver.fill(array, 3, 0)
    assert driver.read(array) == bytes([3]) * 64


def test_a_freed_vector_is_freed():
    vector = freehold.DeviceVec("uint8")
    vector.resize(64)
    vector.free()
    vector.free()
    assert vector.is_freed and repr(vector) == "<freehold.DeviceVec of uint8, freed>"
    for use in (lambda: vector.resize(1), lambda: vector.capacity, vector.view, vector.__dlpack__, vector.shrink_to_fit):
        with pytest.raises(ValueError, match="the vector was freed"):
            use()


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: freehold.DeviceVec("float32", 0), ValueError, "at least one"),
        (lambda: freehold.DeviceVec("float32", 10).resize(11), freehold.Error, "44"),
        (lambda: freehold.DeviceVec("float31"), TypeError, "float31 is not an element type"),
        (lambda: freehold.DeviceVec("int8", device=77), freehold.Error, "77"),
        (lambda: freehold.DeviceVec("int8").view(offset=1), IndexError, "beyond the end"),
    ],
)
def test_a_wrong_call_raises_one_sentence(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_a_budget_limits_vectors_too(driver):
    driver.synchronize()
    freehold.trim()
    freehold.set_budget(freehold.reserved_bytes() + 8 * MIB)
    vector = freehold.DeviceVec("int8")
    try:
        with pytest.raises(freehold.OutOfMemoryError):
            vector.resize(64 * MIB)
    finally:
        freehold.set_budget(None)
    vector.resize(64 * MIB)
    assert len(vector) == 64 * MIB
