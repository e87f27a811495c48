"""Tensors shared between processes, and copies between devices."""

import torch_support
from torch_support import MIB, allocated, empty, filled, torch

import os

import pytest
import torch.multiprocessing as multiprocessing

import freehold.torch

torch_support.require_extension()


def reads_and_writes(other):
    """Reads each tensor that comes, writes it, and says what it read."""
    freehold.torch.enable()
    for _ in range(other.recv()):
        tensor = other.recv()
        other.send((tensor.cpu().unique().tolist(), tensor.numel()))
        tensor.copy_(torch.full((tensor.numel(),), 77, dtype=torch.uint8))
        torch.cuda.synchronize()
        del tensor
        other.send("written")
    other.send((torch.cuda.memory_reserved(), torch.cuda.mem_get_info()[0]))
    other.recv()


@pytest.fixture
def process():
    """Starts a process that reads and writes, and returns the connection to it. If either end fails, the other one has an EOFError."""
    context = multiprocessing.get_context("spawn")
    connection, other = context.Pipe()
    process = context.Process(target=reads_and_writes, args=(other,))
    process.start()
    other.close()
    yield connection
    connection.close()
    process.join()
    assert process.exitcode == 0


def test_a_tensor_is_the_same_memory_in_another_process(process):
    before = allocated()
    tensors = [filled(size, value) for size, value in ((5 * MIB, 11), (300, 12), (40 * MIB, 13))]
    process.send(len(tensors))
    for tensor, value in zip(tensors, (11, 12, 13)):
        process.send(tensor)
        assert process.recv() == ([value], tensor.numel())
        assert process.recv() == "written"
        assert tensor.cpu().unique().tolist() == [77]
    reserved, _ = process.recv()
    assert reserved < 4 * MIB, "the other process maps the memory and allocates none"
    process.send("end")
    del tensor, tensors
    torch.cuda.ipc_collect()
    assert allocated() == before


def test_many_tensors_leave_nothing_behind(process):
    before = (allocated(), len(os.listdir("/proc/self/fd")))
    count = 50
    process.send(count)
    for index in range(count):
        tensor = filled(MIB, index)
        process.send(tensor)
        assert process.recv() == ([index], MIB)
        assert process.recv() == "written"
        del tensor
    process.recv()
    process.send("end")
    torch.cuda.ipc_collect()
    assert allocated() == before[0]
    # The server has a few of its own.
    assert len(os.listdir("/proc/self/fd")) < before[1] + 20


def test_a_tensor_of_a_pool_is_shared(process):
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        padding, tensor = empty(MIB // 2), filled(MIB // 4, 21)
    process.send(1)
    process.send(tensor)
    assert process.recv() == ([21], MIB // 4)
    assert process.recv() == "written"
    assert tensor.cpu().unique().tolist() == [77]
    process.recv()
    process.send("end")
    del padding


def test_a_handle_of_freed_memory_opens_nothing():
    tensor = empty(MIB)
    storage = tensor.untyped_storage()
    device, handle, *_ = storage._share_cuda_()
    assert device == 0 and handle.startswith(b"freehold")
    # Another address, and another token.
    for changed in (handle[:8] + bytes(8) + handle[16:], handle[:16] + bytes(8) + handle[24:]):
        with pytest.raises(RuntimeError, match="freed it"):
            torch.UntypedStorage._new_shared_cuda(0, changed, MIB, 0, b"", 0, b"", False)
    with pytest.raises(RuntimeError, match="without Freehold"):
        torch.UntypedStorage._new_shared_cuda(0, bytes(64), MIB, 0, b"", 0, b"", False)


@pytest.mark.skipif("__import__('torch').cuda.device_count() < 2", reason="needs two devices")
def test_memory_is_copied_between_devices():
    tensor = filled(3 * MIB, 9)
    there = tensor.to("cuda:1")
    assert there.device.index == 1 and there.cpu().unique().tolist() == [9]
    assert torch.cuda.memory_allocated(1) == 3 * MIB
    back = there.to("cuda:0")
    assert back.cpu().unique().tolist() == [9]
    with torch.cuda.device(1):
        there.record_stream(torch.cuda.Stream())
    there.record_stream(torch.cuda.Stream("cuda:0"))
    del there
    torch.cuda.synchronize(0)
    assert torch.cuda.memory_allocated(1) == 0
