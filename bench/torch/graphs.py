"""1,000 replays of graphs beside live tensors, and compiled code that records and leaves graphs. Prints a line of JSON."""

from __future__ import annotations

import json
import sys

from worker import choose_allocator


def replays(count: int) -> dict:
    """Replays a captured training step, and allocates and frees beside it. No tensor may change that was not written."""
    import random

    import torch

    model = torch.nn.Sequential(*[torch.nn.Linear(512, 512), torch.nn.GELU()] * 6).cuda()
    static = torch.randn(64, 512, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            model(static).square().mean().backward()
    torch.cuda.current_stream().wait_stream(side)
    model.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = model(static).square().mean()
        loss.backward()
    live = [torch.full((random.Random(index).randrange(1, 4 << 20),), index, device="cuda") for index in range(100)]
    graph.replay()
    expected = (loss.item(), [parameter.grad.clone() for parameter in model.parameters()])
    shapes = random.Random(3)
    for index in range(count):
        graph.replay()
        number = shapes.randrange(len(live))
        live[number] = torch.full((shapes.randrange(1, 4 << 20),), number, device="cuda")
        if index % 100 == 0:
            torch.cuda.empty_cache()
    torch.cuda.synchronize()
    changed = [index for index, one in enumerate(live) if not bool((one == index).all())]
    gradients = all(torch.equal(one, parameter.grad) for one, parameter in zip(expected[1], model.parameters()))
    pool = graph.pool()
    segments = sum(one["total_size"] for one in torch.cuda.memory_snapshot() if tuple(one["segment_pool_id"]) == tuple(pool))
    return {
        "replays": count,
        "changed": changed,
        "loss_is_the_same": loss.item() == expected[0],
        "gradients_are_the_same": gradients,
        "pool_bytes": segments,
    }


def compiled() -> dict:
    """Runs torch.compile(mode="reduce-overhead") with changing shapes, forward and backward, against eager code."""
    import torch

    model = torch.nn.Sequential(*[torch.nn.Linear(256, 256), torch.nn.GELU()] * 4).cuda()
    fast = torch.compile(model, mode="reduce-overhead", dynamic=False)
    worst = 0.0
    for index in range(60):
        sample = torch.randn([8, 16, 24][index % 3], 256, device="cuda")
        torch.compiler.cudagraph_mark_step_begin()
        result = fast(sample)
        worst = max(worst, (result - model(sample)).abs().max().item())
        result.square().mean().backward()
        model.zero_grad()
    return {"compiled_steps": 60, "compiled_difference_max": worst}


if __name__ == "__main__":
    choose_allocator(sys.argv[1])
    print(json.dumps(replays(1000) | compiled()))
