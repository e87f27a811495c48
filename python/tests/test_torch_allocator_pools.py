"""Private pools: torch.cuda.MemPool, graphs, and what cudagraph trees ask for."""

import gc
import importlib.util

import torch_support
from torch_support import MIB, Graph, allocated, empty, filled, needs_kernels, torch

import pytest

torch_support.require_extension()


@pytest.fixture(autouse=True)
def clean():
    yield
    gc.collect()
    torch.cuda.synchronize()


def segments_of(pool_id) -> list:
    return [one for one in torch.cuda.memory_snapshot() if tuple(one["segment_pool_id"]) == tuple(pool_id)]


def is_within(address: int, segments: list) -> bool:
    return any(one["address"] <= address < one["address"] + one["total_size"] for one in segments)


def captured_copies(graph, source, size: int):
    """Captures copies of a tensor through memory that the graph allocates and frees. Returns the last copy."""
    with graph.capture():
        temporary = empty(size)
        temporary.copy_(source)
        result = empty(size)
        result.copy_(temporary)
        del temporary
        again = empty(size)
        again.copy_(result)
    return again


def test_a_mem_pool_has_its_own_segments():
    pool = torch.cuda.MemPool()
    outside = empty(3 * MIB)
    with torch.cuda.use_mem_pool(pool):
        inside = [empty(3 * MIB), empty(100)]
    after = empty(3 * MIB)
    assert pool.use_count() == 1
    own = segments_of(pool.id)
    assert [is_within(tensor.data_ptr(), own) for tensor in [*inside, outside, after]] == [True, True, False, False]
    found = pool.snapshot()
    assert sorted(one["address"] for one in found) == sorted(one["address"] for one in own)
    assert sum(one["allocated_size"] for one in own) == 3 * MIB + 512
    assert sum(one["total_size"] for one in torch.cuda.memory_snapshot()) == torch.cuda.memory_reserved()


def test_memory_freed_in_a_pool_stays_there():
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        block = empty(4 * MIB)
        address = block.data_ptr()
        del block
    others = [empty(4 * MIB) for _ in range(8)]
    own = segments_of(pool.id)
    assert own and not any(is_within(other.data_ptr(), own) for other in others)
    with torch.cuda.use_mem_pool(pool):
        again = empty(4 * MIB)
    assert again.data_ptr() == address


def test_a_pool_that_is_gone_gives_its_memory_back():
    before = allocated()
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        block = empty(200 * MIB)
    number = pool.id
    del pool
    assert allocated() == before + 200 * MIB
    assert segments_of(number), "a live tensor keeps its memory"
    del block
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    assert segments_of(number) == []
    assert torch.cuda.memory_reserved() < 200 * MIB


def test_a_pool_can_have_an_allocator_of_its_user():
    native = torch.cuda.memory.CUDAPluggableAllocator(freehold_library(), "freehold_alloc", "freehold_free")
    pool = torch.cuda.MemPool(native.allocator())
    with torch.cuda.use_mem_pool(pool):
        block = filled(MIB, 7)
    assert is_within(block.data_ptr(), segments_of(pool.id))
    assert block.cpu().unique().tolist() == [7]
    del block


def test_the_innermost_pool_is_used():
    outer, inner = torch.cuda.MemPool(), torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(outer):
        first = empty(MIB)
        with torch.cuda.use_mem_pool(inner):
            second = empty(MIB)
        third = empty(MIB)
    own = segments_of(inner.id)
    assert [is_within(tensor.data_ptr(), own) for tensor in (first, second, third)] == [False, True, False]
    assert all(is_within(tensor.data_ptr(), segments_of(outer.id)) for tensor in (first, third))


def test_memory_of_a_users_allocator_counts_towards_the_limit():
    native = torch.cuda.memory.CUDAPluggableAllocator(freehold_library(), "freehold_alloc", "freehold_free")
    pool = torch.cuda.MemPool(native.allocator())
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 100 * MIB) / total)
    try:
        with torch.cuda.use_mem_pool(pool):
            block = empty(60 * MIB)
            with pytest.raises(torch.OutOfMemoryError, match="the private pool's own allocator"):
                empty(60 * MIB)
        with pytest.raises(torch.OutOfMemoryError):
            empty(60 * MIB)
        del block
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def freehold_library() -> str:
    import freehold

    return freehold.library()


def test_a_pool_can_be_used_when_memory_runs_out():
    total = torch.cuda.get_device_properties(0).total_memory
    pool = torch.cuda.MemPool(use_on_oom=True)
    with torch.cuda.use_mem_pool(pool):
        block = empty(200 * MIB)
        del block
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 20 * MIB) / total)
    try:
        block = empty(150 * MIB)
        assert is_within(block.data_ptr(), segments_of(pool.id))
        with pytest.raises(torch.OutOfMemoryError):
            empty(150 * MIB)
        del block
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def test_an_unsplit_pool_gives_each_block_a_segment():
    pool = torch.cuda.MemPool(no_split=True)
    with torch.cuda.use_mem_pool(pool):
        blocks = [empty(MIB), empty(MIB)]
    assert len(segments_of(pool.id)) == 2
    del blocks


def test_record_stream_holds_in_a_pool():
    pool = torch.cuda.MemPool()
    side = torch.cuda.Stream()
    with torch.cuda.use_mem_pool(pool):
        block = empty(2 * MIB)
        address = block.data_ptr()
        with torch_support.blocked(side):
            block.record_stream(side)
            del block
            other = empty(2 * MIB)
        again = empty(2 * MIB)
    assert other.data_ptr() != address
    assert again.data_ptr() == address, "after the side stream's work the block is free"


def test_memory_of_a_graph_is_its_own_while_it_lives():
    source = filled(4 * MIB, 1)
    graph = Graph()
    result = captured_copies(graph, source, 4 * MIB)
    own = segments_of(graph.pool())
    assert is_within(result.data_ptr(), own)
    live = [filled(4 * MIB, value) for value in range(8)]
    assert not any(is_within(tensor.data_ptr(), own) for tensor in live)
    torch.cuda.empty_cache()
    for round in range(1000 if torch_support.has_kernels() else 20):
        source.copy_(torch.full((4 * MIB,), round % 256, dtype=torch.uint8)) if round % 50 == 0 else None
        graph.replay()
    torch.cuda.synchronize()
    assert result.cpu().unique().tolist() == source.cpu().unique().tolist()
    assert [tensor.cpu().unique().tolist() for tensor in live] == [[value] for value in range(8)]
    number = graph.pool()
    del graph
    assert segments_of(number), "the result is still there"
    assert result.cpu().unique().tolist() == source.cpu().unique().tolist()
    del result
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    assert segments_of(number) == []


def test_graphs_can_share_a_pool():
    source = filled(2 * MIB, 3)
    first, second = Graph(), Graph()
    with first.capture():
        one = empty(2 * MIB)
        one.copy_(source)
    with second.capture(pool=first.pool()):
        two = empty(2 * MIB)
        two.copy_(one)
    assert is_within(two.data_ptr(), segments_of(first.pool()))
    first.replay()
    second.replay()
    assert two.cpu().unique().tolist() == [3]
    # The first graph still writes where its tensor was.
    own = segments_of(first.pool())
    del one, two
    del second
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    assert [one["address"] for one in segments_of(first.pool())] == [one["address"] for one in own]
    others = [filled(2 * MIB, 9) for _ in range(16)]
    assert not any(is_within(other.data_ptr(), own) for other in others)
    first.replay()
    torch.cuda.synchronize()
    assert all(other.cpu().unique().tolist() == [9] for other in others)


def test_a_block_freed_during_a_capture_is_free_after_it():
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        block = empty(6 * MIB)
    side.synchronize()
    before = allocated()
    graph = Graph()
    source = filled(MIB, 4)
    with graph.capture(stream=side):
        result = empty(MIB)
        result.copy_(source)
        block.record_stream(side)
        del block
        assert torch.cuda.memory_stats()["active_bytes.all.current"] > allocated()
    assert torch.cuda.memory_stats()["active_bytes.all.current"] == allocated()
    # A capture of PyTorch's keeps a few small tensors for random numbers.
    assert 0 <= allocated() - (before - 6 * MIB + 2 * MIB) < MIB
    graph.replay()
    assert result.cpu().unique().tolist() == [4]


def test_a_checkpoint_brings_blocks_back_at_their_addresses():
    pool = torch.cuda.MemPool()
    device = torch.cuda.current_device()
    with torch.cuda.use_mem_pool(pool):
        first, second = empty(MIB), empty(3 * MIB)
    state = torch._C._cuda_getCheckpointState(device, pool.id)
    addresses = {first.data_ptr(), second.data_ptr()}
    assert torch._C._cuda_checkPoolLiveAllocations(device, pool.id, addresses)
    with torch.cuda.use_mem_pool(pool):
        third = empty(2 * MIB)
    assert not torch._C._cuda_checkPoolLiveAllocations(device, pool.id, addresses)
    number = third.untyped_storage()._cdata
    torch._C._cuda_setCheckpointPoolState(device, state, [number], [])
    assert torch._C._cuda_checkPoolLiveAllocations(device, pool.id, addresses)
    # The memory of the third is free again, and the tensor that had it no longer frees it.
    with torch.cuda.use_mem_pool(pool):
        fourth = empty(2 * MIB)
    assert fourth.data_ptr() not in addresses
    del third
    assert is_within(fourth.data_ptr(), segments_of(pool.id))
    del first, second, fourth


@needs_kernels
def test_graphed_callables_train_as_without_graphs():
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).cuda()
    sample = torch.randn(16, 64, device="cuda")
    expected = model(sample).detach().clone()
    graphed = torch.cuda.make_graphed_callables(model, (sample,))
    ballast = [torch.full((1 << 20,), float(index), device="cuda") for index in range(16)]
    for _ in range(100):
        result = graphed(sample)
        result.sum().backward()
    assert torch.allclose(result, expected)
    assert [float(one.min()) for one in ballast] == [float(one.max()) for one in ballast] == list(map(float, range(16)))


@needs_kernels
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="torch.compile needs Triton")
def test_compiled_code_with_reduced_overhead_gives_the_same_results():
    torch.manual_seed(2)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 64)).cuda()
    compiled = torch.compile(model, mode="reduce-overhead")
    samples = [torch.randn(size, 64, device="cuda") for size in (8, 16, 8, 32, 16)]
    with torch.no_grad():
        for _ in range(5):
            for sample in samples:
                torch.compiler.cudagraph_mark_step_begin()
                assert torch.allclose(compiled(sample), model(sample), atol=1e-4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(5):
        torch.compiler.cudagraph_mark_step_begin()
        compiled(samples[0]).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
