"""PyTorch's operators as work of the software device: streams, events, graphs, devices, and memory of the host."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
import threading

import pytest

torch = pytest.importorskip("torch")

import freehold.torch.operators as operators  # noqa: E402

pytestmark = pytest.mark.skipif(not operators.is_enabled(), reason="not under `freehold run --device soft`")

_HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@contextlib.contextmanager
def held(stream):
    """Holds a stream for as long as the block runs."""
    opened = threading.Event()
    wait = _HOST_FUNCTION(lambda _: opened.wait() and None)
    driver = ctypes.CDLL("libcuda.so.1")
    assert driver.cuLaunchHostFunc(ctypes.c_void_p(stream.cuda_stream), wait, None) == 0
    try:
        yield
    finally:
        opened.set()
        stream.synchronize()


@pytest.fixture
def stream():
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    return stream


def test_an_operator_is_work_of_its_stream_and_the_host_goes_on(stream):
    tensor = torch.ones(4, device="cuda")
    torch.cuda.synchronize()
    with held(stream):
        with torch.cuda.stream(stream):
            tensor.add_(1)
        assert not stream.query()
        assert (tensor * 1).tolist() == [1, 1, 1, 1]
    assert tensor.tolist() == [2, 2, 2, 2]


def test_an_operator_waits_for_an_event_of_another_stream(stream):
    tensor = torch.zeros(4, device="cuda")
    second = torch.cuda.Stream()
    torch.cuda.synchronize()
    with held(stream):
        with torch.cuda.stream(stream):
            tensor.fill_(5)
        event = stream.record_event()
        second.wait_event(event)
        with torch.cuda.stream(second):
            result = tensor * 2
        assert not event.query() and not second.query()
    second.synchronize()
    assert result.tolist() == [10, 10, 10, 10]


def test_a_stream_sleeps_for_a_number_of_cycles_and_the_host_goes_on(stream):
    kilohertz = torch.cuda.get_device_properties(0).clock_rate
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with torch.cuda.stream(stream), held(stream):
        start.record()
        # Twenty milliseconds.
        torch.cuda._sleep(20 * kilohertz)
        end.record()
        assert not end.query()
    assert start.elapsed_time(end) >= 20


def test_memory_that_another_stream_uses_is_not_given_out_again(stream):
    tensor = torch.ones(1000, device="cuda")
    torch.cuda.synchronize()
    with held(stream):
        with torch.cuda.stream(stream):
            total = tensor.sum()
        tensor.record_stream(stream)
        del tensor
        others = [torch.zeros(1000, device="cuda") for _ in range(4)]
    assert total.item() == 1000 and sum(other.sum().item() for other in others) == 0


def test_an_operand_of_the_cpu_is_read_at_the_call(stream):
    tensor, scale, index = torch.ones(3, device="cuda"), torch.tensor(4.0), torch.tensor([2])
    torch.cuda.synchronize()
    with held(stream):
        with torch.cuda.stream(stream):
            scaled, chosen = tensor * scale, torch.arange(3, device="cuda")[index]
        scale.fill_(9)
        index.fill_(0)
    assert scaled.tolist() == [4, 4, 4] and chosen.tolist() == [2]


def captured(compute):
    """Returns a graph of a function, and what it returned."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = compute()
    # PyTorch writes the seed of the graph in the stream of the capture, and nothing orders that before a replay in another.
    torch.cuda.synchronize()
    return graph, result


def test_a_graph_computes_anew_at_each_replay():
    tensor = torch.ones(4, device="cuda")
    graph, result = captured(lambda: (tensor * 2 + 1).sum())
    for value, expected in ((1, 12), (5, 44)):
        tensor.fill_(value)
        graph.replay()
        assert result.item() == expected


def test_a_graph_draws_other_numbers_at_each_replay_and_the_same_after_a_seed():
    graph, result = captured(lambda: torch.rand(50, device="cuda"))
    drawn = []
    for seed in (1, None, 1):
        if seed is not None:
            torch.manual_seed(seed)
        graph.replay()
        drawn.append(result.clone())
    assert torch.equal(drawn[0], drawn[2]) and not torch.equal(drawn[0], drawn[1])
    torch.manual_seed(1)
    assert torch.equal(torch.rand(50, device="cuda"), drawn[0])


def test_a_captured_training_step_trains_as_without_a_graph():
    def trained(is_captured):
        torch.manual_seed(0)
        model = torch.nn.Linear(6, 3).cuda()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, capturable=True)
        inputs, targets = torch.ones(5, 6, device="cuda"), torch.arange(5, device="cuda") % 3

        def step():
            optimizer.zero_grad(set_to_none=False)
            loss = torch.nn.functional.cross_entropy(model(inputs), targets)
            loss.backward()
            optimizer.step()
            return loss

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            step()
        torch.cuda.current_stream().wait_stream(side)
        run = step
        if is_captured:
            graph, loss = captured(step)
            run = lambda: graph.replay() or loss  # noqa: E731
        return [run().item() for _ in range(4)]

    assert trained(True) == pytest.approx(trained(False), rel=1e-5)


def test_a_shape_that_depends_on_data_cannot_be_captured():
    mask = torch.tensor([True, False], device="cuda")
    with pytest.raises(RuntimeError, match="nonzero: its result depends on data, and cannot be captured"):
        captured(mask.nonzero)
    assert mask.nonzero().tolist() == [[0]]


def test_pinned_memory_is_copied_in_stream_order(stream):
    source = torch.arange(6.0).pin_memory()
    result = torch.empty(6).pin_memory()
    with torch.cuda.stream(stream):
        tensor = source.to("cuda", non_blocking=True)
        result.copy_(tensor * 2, non_blocking=True)
    stream.synchronize()
    assert result.tolist() == [0, 2, 4, 6, 8, 10]


def test_lists_are_copied_between_the_host_and_the_device():
    tensors, copies = [torch.ones(2, device="cuda"), torch.zeros(3, device="cuda").half()], [torch.zeros(2), torch.ones(3)]
    torch._foreach_copy_(copies, tensors)
    assert [copy.tolist() for copy in copies] == [[1, 1], [0, 0, 0]]


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs FREEHOLD_SOFT_DEVICES=2")
def test_operators_run_on_the_device_of_their_tensors():
    first, second = torch.ones(3, 4, device="cuda:0"), torch.full((3, 4), 2.0, device="cuda:1")
    assert (second * 3).device == torch.device("cuda:1") and (second * 3).sum().item() == 72
    with pytest.raises(RuntimeError, match="at least two devices, cuda:0 and cuda:1"):
        first + second
    # Not contiguous, and of another type.
    assert second.t()[:2].to("cuda:0", torch.half).tolist() == [[2.0] * 3] * 2
    first.t().copy_(second.double().t())
    assert first.sum().item() == 24
    with torch.cuda.device(1):
        assert torch.rand(2, device="cuda").device == torch.device("cuda:1")


def test_autocast_computes_products_in_half_precision():
    model, inputs = torch.nn.Linear(4, 4).cuda(), torch.ones(2, 4, device="cuda")
    with torch.autocast("cuda", dtype=torch.float16):
        result = model(inputs)
        assert result.dtype == torch.float16 and torch.softmax(result, 1).dtype == torch.float32
    torch.testing.assert_close(result.float(), model(inputs), rtol=1e-2, atol=1e-2)


def test_a_scaler_of_gradients_skips_a_step_that_overflows():
    parameter = torch.nn.Parameter(torch.ones(2, device="cuda"))
    optimizer, scaler = torch.optim.SGD([parameter], lr=1.0), torch.amp.GradScaler("cuda", init_scale=4.0)
    for gradient, expected, scale in ((float("inf"), [1, 1], 2.0), (0.5, [0.5, 0.5], 2.0)):
        optimizer.zero_grad()
        scaler.scale((parameter * gradient).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert parameter.tolist() == expected and scaler.get_scale() == scale


def test_an_error_in_the_data_is_told_once():
    torch.ones(3, device="cuda").index_select(0, torch.tensor([7], device="cuda"))
    with pytest.raises(RuntimeError, match="failed on the software device"):
        torch.cuda.current_stream().synchronize()
    torch.cuda.synchronize()
    torch.embedding(torch.ones(3, 2, device="cuda"), torch.tensor([7], device="cuda"))
    with pytest.raises(RuntimeError, match="failed on the software device"):
        torch.zeros(1, device="cuda").item()


RACE = """
import torch
tensor, stream = torch.ones(1000, device="cuda"), torch.cuda.Stream()
torch.cuda.synchronize()
tensor.mul_(2)
{wait}
with torch.cuda.stream(stream):
    tensor.add_(1)
torch.cuda.synchronize()
"""


# Columns that alternate in memory, each written in its own stream.
COLUMNS = """
stream.wait_stream(torch.cuda.current_stream())
columns = torch.empty(4, 4, device="cuda")
columns[:, 2:].fill_(2)
with torch.cuda.stream(stream):
    columns[:, :2].fill_(1)
"""


@pytest.mark.parametrize(
    ("wait", "status", "said"),
    [
        ("", 1, "stream-race: aten::add"),
        ("stream.wait_stream(torch.cuda.current_stream())", 0, "no findings"),
        (COLUMNS, 0, "no findings"),
    ],
)
def test_the_checker_finds_a_missing_wait_between_operators(wait, status, said):
    command = [os.environ["FREEHOLD_COMMAND"], "check", "--", sys.executable, "-c", RACE.format(wait=wait)]
    found = subprocess.run(command, capture_output=True, text=True)
    assert said in found.stderr + found.stdout and (found.returncode != 0) == (status != 0)

FAILING = """
import torch

def test_wrong_index():
    torch.ones(3, device="cuda").index_select(0, torch.tensor([7], device="cuda"))

def test_right_index():
    assert torch.ones(3, device="cuda").index_select(0, torch.tensor([2], device="cuda")).item() == 1
"""


def test_an_error_in_the_data_fails_its_own_test(tmp_path):
    (tmp_path / "test_program.py").write_text(FAILING)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("FREEHOLD_DEVICE", "LD_"))}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--freehold", str(tmp_path)]
    found = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert "RuntimeError: aten::index_select failed on the software device" in found.stdout
    assert "1 failed, 1 passed" in found.stdout
