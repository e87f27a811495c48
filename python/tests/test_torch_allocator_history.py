"""Snapshots and the history of allocations, as torch.cuda._memory_viz reads them."""

import pickle

import torch_support
from torch_support import MIB, empty, torch

import pytest
from torch.cuda import _memory_viz

torch_support.require_extension()


@pytest.fixture
def history():
    """Records the history during a test."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.memory._record_memory_history(max_entries=1000, stacks="python", clear_history=True)
    yield
    torch.cuda.memory._record_memory_history(None)


def trace() -> list:
    return torch.cuda.memory._snapshot()["device_traces"][0]


def allocates_here(size: int):
    return empty(size)


def block_at(snapshot: dict, address: int) -> dict:
    blocks = [block for segment in snapshot["segments"] for block in segment["blocks"] if block["address"] == address]
    assert len(blocks) == 1
    return blocks[0]


def test_a_snapshot_shows_blocks_and_what_is_free_between_them():
    tensors = [empty(size) for size in (3 * MIB, 3 * MIB, 100)]
    addresses = [tensor.data_ptr() for tensor in tensors]
    del tensors[1]
    snapshot = torch.cuda.memory._snapshot()
    first, last = block_at(snapshot, addresses[0]), block_at(snapshot, addresses[2])
    assert (first["state"], first["size"], first["requested_size"]) == ("active_allocated", 3 * MIB, 3 * MIB)
    assert (last["state"], last["size"], last["requested_size"]) == ("active_allocated", 512, 100)
    for segment in snapshot["segments"]:
        ends = [block["address"] + block["size"] for block in segment["blocks"]]
        starts = [block["address"] for block in segment["blocks"]] + [segment["address"] + segment["total_size"]]
        assert starts[0] == segment["address"] and ends == starts[1:]
    around = [one for one in snapshot["segments"] if 0 <= addresses[1] - one["address"] < one["total_size"]]
    free = [block for block in around[0]["blocks"] if block["state"] == "inactive"]
    assert any(block["address"] <= addresses[1] < block["address"] + block["size"] for block in free)


def test_the_trace_has_the_events_of_a_block_in_order(history):
    size = 5 * MIB + 3
    block = empty(size)
    address = block.data_ptr()
    del block
    events = [(one["action"], one["size"]) for one in trace() if one["addr"] == address]
    expected = [("alloc", size), ("free_requested", size), ("free_completed", size)]
    assert [event for event in events if not event[0].startswith("segment")] == expected


def test_a_trace_ends_before_its_own_snapshot(history):
    block = empty(5 * MIB)
    assert trace()[-1]["addr"] == block.data_ptr()
    assert trace()[-1]["action"] == "snapshot"


def test_the_end_of_a_block_has_the_stack_that_freed_it(history):
    block = allocates_here(5 * MIB)
    address = block.data_ptr()
    del block
    completed = [one for one in trace() if one["addr"] == address and one["action"] == "free_completed"]
    names = [frame["name"] for frame in completed[0]["frames"]]
    assert names and "allocates_here" not in names


def test_the_trace_has_mapped_and_unmapped_memory(history):
    block = empty(40 * MIB)
    address = block.data_ptr()
    del block
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    mapped = [one for one in trace() if one["action"] == "segment_map"]
    unmapped = [one for one in trace() if one["action"] == "segment_unmap"]
    assert any(one["addr"] <= address < one["addr"] + one["size"] for one in mapped)
    assert sum(one["size"] for one in mapped) >= 40 * MIB
    assert sum(one["size"] for one in unmapped) >= 40 * MIB


def test_events_and_blocks_have_the_stack_that_allocated(history):
    block = allocates_here(2 * MIB)
    snapshot = torch.cuda.memory._snapshot()
    frames = block_at(snapshot, block.data_ptr())["frames"]
    assert "allocates_here" in [frame["name"] for frame in frames]
    event = [one for one in trace() if one["action"] == "alloc"][-1]
    assert "allocates_here" in [frame["name"] for frame in event["frames"]]


@pytest.mark.parametrize("level", ["state", "alloc", "all"])
def test_the_level_says_which_stacks_are_kept(level):
    def frees_here(tensors):
        tensors.clear()

    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.memory._record_memory_history(context=level, stacks="python", clear_history=True)
    try:
        frees_here([allocates_here(40 * MIB)])
        torch.cuda.empty_cache()
        text = str(torch.cuda.memory._snapshot())
    finally:
        torch.cuda.memory._record_memory_history(None)
    assert ("allocates_here" in text) == (level != "state")
    assert ("frees_here" in text) == (level == "all")
    assert ("empty_cache" in text) == (level == "all")


def test_without_a_history_nothing_is_recorded():
    torch.cuda.memory._record_memory_history(None)
    block = allocates_here(2 * MIB)
    snapshot = torch.cuda.memory._snapshot()
    assert block_at(snapshot, block.data_ptr())["frames"] == []
    assert snapshot["device_traces"][0] == []


def test_a_history_without_stacks_has_the_events():
    torch.cuda.memory._record_memory_history("all", context=None, clear_history=True)
    try:
        block = allocates_here(2 * MIB)
        event = [one for one in trace() if one["action"] == "alloc"][-1]
    finally:
        torch.cuda.memory._record_memory_history(None)
    assert (event["addr"], event["size"], event.get("frames")) == (block.data_ptr(), 2 * MIB, None)


def test_the_history_keeps_the_newest_events():
    torch.cuda.memory._record_memory_history(max_entries=10, clear_history=True)
    try:
        for _ in range(20):
            empty(MIB)
        last = empty(3 * MIB)
        events = trace()
        assert len(events) == 10
        times = [one["time_us"] for one in events]
        assert times == sorted(times)
        newest = [one for one in events if one["action"] == "alloc"][-1]
        assert newest["addr"] == last.data_ptr()
    finally:
        torch.cuda.memory._record_memory_history(None)


def test_a_shortage_is_in_the_trace(history):
    total = torch.cuda.get_device_properties(0).total_memory
    with pytest.raises(torch.OutOfMemoryError):
        empty(2 * total)
    shortage = [one for one in trace() if one["action"] == "oom"]
    assert [one["size"] for one in shortage] == [2 * total]
    assert 0 < shortage[0]["device_free"] <= total


def test_a_dump_opens_in_memory_viz(history, tmp_path):
    blocks = [allocates_here(size * MIB) for size in (1, 20, 3)]
    del blocks[1]
    file = tmp_path / "dump.pickle"
    torch.cuda.memory._dump_snapshot(str(file))
    with open(file, "rb") as opened:
        snapshot = pickle.load(opened)
    for plot in (_memory_viz.trace_plot(snapshot), _memory_viz.segment_plot(snapshot)):
        assert "<html" in plot.lower() or "<!doctype html" in plot.lower()
    summary = _memory_viz.segsum(snapshot)
    assert "segments: " in summary or "total_reserved" in summary, summary
    assert "20.0MiB" in _memory_viz.trace(snapshot)


def test_metadata_and_annotations_are_in_the_snapshot(history):
    torch.cuda.memory._set_memory_metadata("phase one")
    try:
        assert torch.cuda.memory._get_memory_metadata() == "phase one"
        block = empty(MIB)
        event = [one for one in trace() if one["action"] == "alloc"][-1]
        assert event["addr"] == block.data_ptr()
        assert event.get("user_metadata") == "phase one"
    finally:
        torch.cuda.memory._set_memory_metadata("")
