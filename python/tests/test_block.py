"""Blocks of device memory, without another library. Run under `freehold run`."""

import ctypes
import functools
import gc
import os
import subprocess
import sys
import threading

import pytest

import freehold

KIB, MIB = 1 << 10, 1 << 20


def test_a_block_is_freed_with_its_last_reference(driver):
    block = freehold.alloc(3 * MIB)
    other, address = block, block.ptr
    assert (block.nbytes, len(block), block.device, block.stream, block.tag) == (3 * MIB, 3 * MIB, 0, 0, None)
    del block
    assert freehold.owner_of(address).is_live
    del other
    gc.collect()
    assert not freehold.owner_of(address).is_live


def test_a_freed_block_is_reused_in_its_stream_while_the_stream_is_busy(driver):
    stream = driver.stream()
    block = freehold.alloc(MIB, stream=stream)
    address = block.ptr
    open_gate = driver.gate(stream)
    block.free()
    again = freehold.alloc(MIB, stream=stream)
    assert again.ptr == address
    open_gate()


def test_a_block_used_in_another_stream_is_not_reused_before_that_stream_is_done(driver):
    own, other = driver.stream(), driver.stream()
    block = freehold.alloc(MIB, stream=own)
    address = block.ptr
    open_gate = driver.gate(other)
    block.record_use(other)
    block.free()
    kept = [freehold.alloc(MIB, stream=own) for _ in range(8)]
    assert address not in [other_block.ptr for other_block in kept]
    open_gate()


def test_memory_without_a_stream_is_reused_when_all_work_is_done(driver):
    busy = driver.stream()
    address = freehold.raw_alloc(MIB)
    open_gate = driver.gate(busy)
    freehold.free_after_all(address)
    kept = [freehold.raw_alloc(MIB) for _ in range(8)]
    assert address not in kept
    open_gate()
    driver.synchronize()
    for other in kept:
        freehold.raw_free(other)


def test_a_stream_ordered_after_another_waits_for_it(driver):
    earlier, later = driver.stream(), driver.stream()
    block = freehold.alloc(64, stream=earlier)
    open_gate = driver.gate(earlier)
    driver.fill(block, 1, earlier)
    freehold.order_after(later, earlier)
    driver.fill(block, 2, later)
    open_gate()
    assert driver.read(block) == bytes([2]) * 64


def test_a_block_grows_with_its_contents(driver):
    block = freehold.alloc(100, zeroed=True)
    driver.fill(block, 7, 0)
    block.resize(200)
    assert block.nbytes == 200
    assert driver.read(block)[:100] == bytes([7]) * 100


def test_tags_and_budgets_limit_what_is_allocated(driver):
    freehold.set_tag_budget("model", 2 * MIB)
    block = freehold.alloc(MIB, tag="model/cache")
    assert freehold.tag_bytes("model") == MIB
    with pytest.raises(freehold.OutOfMemoryError, match="model"):
        freehold.alloc(2 * MIB, tag="model/weights")
    del block
    freehold.set_tag_budget("model", None)
    freehold.set_budget(64 * MIB)
    with pytest.raises(MemoryError):
        freehold.alloc(128 * MIB)
    freehold.set_budget(None)


def test_an_owner_is_found_by_an_address_inside_its_block(driver):
    block = freehold.alloc(MIB)
    owner = freehold.owner_of(block.ptr + 5)
    assert (owner.ptr, owner.nbytes, owner.process, owner.is_live) == (block.ptr, MIB, os.getpid(), True)
    assert "1048576 bytes" in repr(owner)


def test_a_repr_says_what_and_where_a_block_is():
    block = freehold.alloc(3 * MIB // 2, tag="weights")
    assert repr(block) == f"<freehold.Block of 1.5 MiB at {block.ptr:#x}, device 0, the default stream, tag \"weights\">"
    block.free()
    assert repr(block) == "<freehold.Block of 1.5 MiB, freed>"
    block.free()


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: freehold.alloc(1 << 60), MemoryError, "out of memory: 1073741824.0 GiB requested"),
        (lambda: freehold.alloc(0), freehold.Error, "zero bytes"),
        (lambda: freehold.alloc(-1), OverflowError, "negative"),
        (lambda: freehold.alloc(1, device=99), freehold.Error, "device"),
        (lambda: freehold.alloc(1, stream="x"), TypeError, "str is not a stream"),
        (lambda: freehold.alloc(1, tag="a\0b"), ValueError, "zero bytes"),
        (lambda: freehold.alloc(1, tag="a", zeroed=True), ValueError, "tagged"),
        (lambda: freehold.raw_free(0x77), freehold.Error, "0x77"),
        (lambda: freehold.owner_of(0x77), freehold.Error, "0x77"),
        (lambda: freehold.record_use(0x77, 0), freehold.Error, "0x77"),
    ],
)
def test_a_wrong_call_raises_one_sentence(call, error, text):
    with pytest.raises(error, match=text) as raised:
        call()
    assert "\n" not in str(raised.value).strip() or error is MemoryError


def test_a_freed_block_has_no_address():
    block = freehold.alloc(64)
    block.free()
    view = functools.partial(block.view, "float32")
    for use in (lambda: block.ptr, lambda: block.__cuda_array_interface__, lambda: block.resize(5), block.__dlpack__, view):
        with pytest.raises(ValueError, match="the block was freed"):
            use()


def test_streams_of_other_libraries_are_understood(driver):
    stream = driver.stream()

    class Protocol:
        def __cuda_stream__(self):
            return (0, stream)

    class Torch:
        cuda_stream = stream

    class CuPy:
        ptr = stream

    class Numba:
        handle = ctypes.c_void_p(stream)

    for object_of_library in (stream, Protocol(), Torch(), CuPy(), Numba()):
        assert freehold.alloc(64, stream=object_of_library).stream == stream
    assert freehold.alloc(64, stream=None).stream == 0


def test_a_block_is_an_array_of_bytes():
    block = freehold.alloc(64)
    interface = block.__cuda_array_interface__
    assert interface == {"shape": (64,), "typestr": "|u1", "data": (block.ptr, False), "version": 3, "stream": 1}
    assert block.__dlpack_device__() == (2, 0)
    assert "dltensor" in repr(block.__dlpack__())
    assert "dltensor_versioned" in repr(block.__dlpack__(max_version=(1, 0)))
    with pytest.raises(BufferError, match="copy"):
        block.__dlpack__(copy=True)
    with pytest.raises(BufferError, match="device"):
        block.__dlpack__(dl_device=(1, 0))


def test_an_exported_array_keeps_its_block():
    block = freehold.alloc(MIB)
    address = block.ptr
    capsule = block.__dlpack__()
    del block
    gc.collect()
    assert freehold.owner_of(address).is_live
    del capsule
    gc.collect()
    assert not freehold.owner_of(address).is_live


def test_threads_allocate_and_free_each_others_blocks(driver):
    # Blocks of earlier tests that wait for all work are free now.
    driver.synchronize()
    freehold.trim()
    before = freehold.live_bytes()
    blocks = []

    def allocate():
        for _ in range(200):
            blocks.append(freehold.alloc(KIB))
            if len(blocks) > 50:
                blocks.pop().free()

    threads = [threading.Thread(target=allocate) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    blocks.clear()
    assert freehold.live_bytes() == before


def test_blocks_that_live_until_the_end_do_not_disturb_it():
    program = "import freehold; block = freehold.alloc(64); capsule = freehold.alloc(64).__dlpack__(); print('done')"
    outcome = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (outcome.returncode, outcome.stdout, outcome.stderr) == (0, "done\n", "")


def test_the_library_and_the_headers_are_files():
    assert os.path.isfile(freehold.library())
    assert os.path.isfile(os.path.join(freehold.include_dir(), "freehold.h"))
    assert os.path.isfile(os.path.join(freehold.include_dir(), "freehold", "check.h"))
    functions = ctypes.CDLL(freehold.library())
    functions.freehold_live_bytes.restype = ctypes.c_size_t
    block = freehold.alloc(MIB)
    assert functions.freehold_live_bytes(0) == freehold.live_bytes() >= block.nbytes
