"""Tensors shared between processes, and copies between devices."""

import torch_support
from torch_support import MIB, allocated, empty, filled, torch

import os

import pytest
import torch.multiprocessing as multiprocessing

import freehold.torch

torch_support.require_extension()


def reads_and_writes(received, answers):
    """Reads each tensor that comes, writes it, and says what it read."""
    freehold.torch.enable()
    for _ in range(received.get()):
        tensor = received.get()
        answers.put((tensor.cpu().unique().tolist(), tensor.numel()))
        tensor.copy_(torch.full((tensor.numel(),), 77, dtype=torch.uint8))
        torch.cuda.synchronize()
        del tensor
        answers.put("written")
    answers.put((torch.cuda.memory_reserved(), torch.cuda.mem_get_info()[0]))
    received.get()


def without_freehold(received, answers):
    try:
        received.get()
        answers.put("opened")
    except RuntimeError as error:
        answers.put(str(error))


@pytest.fixture
def processes():
    """Starts a process with two queues; ends it."""
    context = multiprocessing.get_context("spawn")
    started = []

    def start(target):
        received, answers = context.Queue(), context.Queue()
        process = context.Process(target=target, args=(received, answers))
        process.start()
        started.append(process)
        return received, answers

    yield start
    for process in started:
        process.join(20)
        code = process.exitcode
        # Where the test has failed, the process still waits for tensors.
        process.kill()
        assert code == 0


def test_a_tensor_is_the_same_memory_in_another_process(processes):
    before = allocated()
    received, answers = processes(reads_and_writes)
    tensors = [filled(size, value) for size, value in ((5 * MIB, 11), (300, 12), (40 * MIB, 13))]
    received.put(len(tensors))
    for tensor, value in zip(tensors, (11, 12, 13)):
        received.put(tensor)
        assert answers.get(timeout=60) == ([value], tensor.numel())
        assert answers.get(timeout=60) == "written"
        assert tensor.cpu().unique().tolist() == [77]
    reserved, _ = answers.get(timeout=60)
    assert reserved < 4 * MIB, "the other process maps the memory and allocates none"
    received.put("end")
    del tensor, tensors
    torch.cuda.ipc_collect()
    assert allocated() == before


def test_many_tensors_leave_nothing_behind(processes):
    before = (allocated(), len(os.listdir("/proc/self/fd")))
    received, answers = processes(reads_and_writes)
    count = 50
    received.put(count)
    for index in range(count):
        tensor = filled(MIB, index)
        received.put(tensor)
        assert answers.get(timeout=60) == ([index], MIB)
        assert answers.get(timeout=60) == "written"
        del tensor
    _, _ = answers.get(timeout=60)
    received.put("end")
    torch.cuda.ipc_collect()
    assert allocated() == before[0]
    # Queues and the server have a few of their own.
    assert len(os.listdir("/proc/self/fd")) < before[1] + 20


def test_a_tensor_of_a_pool_is_shared(processes):
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        padding, tensor = empty(MIB // 2), filled(MIB // 4, 21)
    received, answers = processes(reads_and_writes)
    received.put(1)
    received.put(tensor)
    assert answers.get(timeout=60) == ([21], MIB // 4)
    assert answers.get(timeout=60) == "written"
    assert tensor.cpu().unique().tolist() == [77]
    answers.get(timeout=60)
    received.put("end")
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
