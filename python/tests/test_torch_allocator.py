"""Freehold behind PyTorch's own allocator interface: blocks, streams, statistics and limits."""

import os
import random
import threading

import torch_support
from torch_support import MIB, allocated, empty, filled, torch

import freehold
import pytest

torch_support.require_extension()


@pytest.fixture(autouse=True)
def clean():
    """Starts each test with an empty cache and fresh statistics."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()
    before = allocated()
    yield
    torch.cuda.synchronize()
    assert allocated() == before, "a test keeps tensors"


def counted() -> dict:
    """Returns what a snapshot says of statistics that do not depend on the past."""
    found = dict.fromkeys(["allocation", "active", "segment", "allocated", "active_bytes", "requested", "reserved"], 0)
    for segment in torch.cuda.memory_snapshot():
        found["segment"] += 1
        found["allocated"] += segment["allocated_size"]
        found["active_bytes"] += segment["active_size"]
        found["requested"] += segment["requested_size"]
        found["reserved"] += segment["total_size"]
        assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"]
        for block in segment["blocks"]:
            found["allocation"] += block["state"] == "active_allocated"
            found["active"] += block["state"].startswith("active")
    return found


def assert_consistent() -> None:
    stats, found = torch.cuda.memory_stats(), counted()
    names = {"allocation": "allocation", "active": "active", "segment": "segment", "allocated": "allocated_bytes"}
    names |= {"active_bytes": "active_bytes", "requested": "requested_bytes", "reserved": "reserved_bytes"}
    for name, stat in names.items():
        assert stats[f"{stat}.all.current"] == found[name], stat
        assert stats[f"{stat}.large_pool.current"] == found[name], stat


def test_the_allocator_is_freeholds():
    assert torch.cuda.get_allocator_backend() == "freehold"
    assert freehold.torch.is_enabled()


def test_statistics_are_exact():
    tensors = [empty(size) for size in (1, 512, 513, 3 * MIB, 30 * MIB + 7)]
    sizes = [512, 512, 1024, 3 * MIB, 30 * MIB + 512]
    assert allocated() == sum(sizes)
    stats = torch.cuda.memory_stats()
    assert stats["requested_bytes.all.current"] == 1 + 512 + 513 + 3 * MIB + 30 * MIB + 7
    assert stats["allocation.all.current"] == 5
    assert torch.cuda.memory_reserved() == freehold.reserved_bytes(0) >= sum(sizes)
    assert_consistent()
    del tensors[3]
    assert allocated() == sum(sizes) - 3 * MIB
    assert torch.cuda.max_memory_allocated() == sum(sizes)
    assert torch.cuda.memory_stats()["allocation.all.freed"] == 1
    assert_consistent()
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == sum(sizes) - 3 * MIB
    torch.cuda.reset_accumulated_memory_stats()
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == 0


def test_torch_accelerator_has_the_same_statistics():
    before = torch.accelerator.memory_allocated()
    tensor = empty(5 * MIB)
    assert torch.accelerator.memory_allocated() == before + 5 * MIB == allocated()
    assert torch.accelerator.memory_stats()["active_bytes.all.current"] == before + 5 * MIB
    del tensor
    torch.accelerator.empty_cache()
    assert torch.accelerator.memory_reserved() == torch.cuda.memory_reserved()


def test_the_summary_has_the_numbers():
    tensor = empty(5 * MIB)
    summary = torch.cuda.memory_summary(abbreviated=True)
    assert "Allocated memory" in summary and "5120 KiB" in summary
    del tensor


def test_a_freed_block_is_reused_on_its_stream_at_once():
    first = empty(7 * MIB)
    address = first.data_ptr()
    del first
    second = empty(7 * MIB)
    assert second.data_ptr() == address


def test_a_freed_block_is_not_reused_in_another_stream_while_its_own_works():
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        block = empty(7 * MIB)
    address = block.data_ptr()
    with torch_support.blocked(side):
        del block
        others = [empty(7 * MIB) for _ in range(4)]
        assert address not in [other.data_ptr() for other in others]
        with torch.cuda.stream(side):
            own = empty(7 * MIB)
        assert own.data_ptr() == address


def test_record_stream_keeps_a_block_until_the_other_stream_is_done():
    side = torch.cuda.Stream()
    kept, plain = empty(7 * MIB), empty(9 * MIB)
    addresses = (kept.data_ptr(), plain.data_ptr())
    with torch_support.blocked(side):
        kept.record_stream(side)
        del kept, plain
        again = empty(9 * MIB)
        assert again.data_ptr() == addresses[1], "what no other stream uses is free at once"
        others = [empty(7 * MIB) for _ in range(4)]
        assert addresses[0] not in [other.data_ptr() for other in others]
    del others, again
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() < 7 * MIB


def test_empty_cache_returns_memory_to_the_driver():
    block = empty(64 * MIB)
    assert torch.cuda.memory_reserved() >= 64 * MIB
    del block
    assert torch.cuda.memory_reserved() >= 64 * MIB
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() < 64 * MIB
    assert_consistent()


def test_raw_blocks_are_allocated_and_freed():
    before = allocated()
    address = torch.cuda.caching_allocator_alloc(3 * MIB)
    assert allocated() == before + 3 * MIB
    torch.cuda.caching_allocator_delete(address)
    assert allocated() == before
    with pytest.raises(RuntimeError, match="invalid device pointer"):
        torch.cuda.caching_allocator_delete(address)


def test_without_the_cache_blocks_come_from_the_driver():
    before = allocated()
    torch.cuda.memory.caching_allocator_enable(False)
    try:
        block = empty(MIB)
        assert allocated() == before
        del block
        address = torch.cuda.caching_allocator_alloc(MIB)
        assert allocated() == before
    finally:
        torch.cuda.memory.caching_allocator_enable(True)
    torch.cuda.caching_allocator_delete(address)
    block = empty(MIB)
    assert allocated() == before + MIB
    del block


def test_a_memory_fraction_limits_the_process():
    total = torch.cuda.get_device_properties(0).total_memory
    limit = 256 * MIB
    torch.cuda.set_per_process_memory_fraction(limit / total)
    try:
        assert torch.cuda.get_per_process_memory_fraction() == limit / total
        half = empty(128 * MIB)
        with pytest.raises(torch.OutOfMemoryError, match="allowed by set_per_process_memory_fraction"):
            empty(256 * MIB)
        del half
        # What was free is reused, whatever its size was.
        whole = empty(250 * MIB)
        del whole
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    with pytest.raises(ValueError):
        torch.cuda.set_per_process_memory_fraction(1.5)


def test_running_out_of_memory_says_why_and_changes_nothing():
    total = torch.cuda.get_device_properties(0).total_memory
    before = allocated()
    with pytest.raises(torch.OutOfMemoryError) as raised:
        empty(2 * total)
    text = str(raised.value)
    assert "CUDA out of memory. Tried to allocate" in text
    assert "Freehold: out of memory: " in text and "request less than the device has" in text
    stats = torch.cuda.memory_stats()
    assert (stats["num_ooms"], stats["num_alloc_retries"]) == (1, 1)
    assert allocated() == before
    small = empty(MIB)
    del small


def test_observers_hear_of_shortages():
    heard = []
    torch._C._cuda_attach_out_of_memory_observer(lambda *told: heard.append(told))
    total = torch.cuda.get_device_properties(0).total_memory
    with pytest.raises(torch.OutOfMemoryError):
        empty(2 * total)
    assert [(device, wanted) for device, wanted, *_ in heard] == [(0, 2 * total)]


def test_cached_memory_of_other_sizes_does_not_cause_a_shortage():
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(512 * MIB / total)
    try:
        pieces = [empty(16 * MIB) for _ in range(30)]
        del pieces[::2]
        # 240 MiB are free, and not side by side.
        large = empty(200 * MIB)
        del large, pieces
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


@pytest.mark.parametrize("history", [False, True])
def test_threads_with_streams_of_their_own_leave_exact_statistics(history):
    seed = int(os.environ.get("FREEHOLD_TEST_SEED", random.randrange(1 << 32)))
    print(f"FREEHOLD_TEST_SEED={seed}")
    shared = [torch.cuda.Stream() for _ in range(2)]
    failures = []

    def work(number: int) -> None:
        try:
            numbers, kept = random.Random(seed + number), []
            for _ in range(300):
                stream = numbers.choice(shared)
                with torch.cuda.stream(stream):
                    kept.append(empty(int(2 ** numbers.uniform(0, 23))))
                if numbers.random() < 0.3:
                    kept[-1].record_stream(numbers.choice(shared))
                while len(kept) > numbers.randrange(20):
                    kept.pop(numbers.randrange(len(kept)))
                if numbers.random() < 0.01:
                    torch.cuda.memory_snapshot()
                    torch.cuda.empty_cache()
        except Exception as error:  # noqa: BLE001  (told by the test's thread)
            failures.append(error)

    if history:
        torch.cuda.memory._record_memory_history(stacks="python", max_entries=500)
    try:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        torch.cuda.memory._record_memory_history(None)
    assert failures == []
    torch.cuda.synchronize()
    assert_consistent()
