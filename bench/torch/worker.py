"""One process with one allocator and one workload. Reads "round" from its input, and answers with a line of JSON."""

from __future__ import annotations

import json
import os
import sys
import time


def choose_allocator(allocator: str) -> None:
    """Chooses the allocator, before PyTorch uses the GPU."""
    if allocator == "expandable":
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    import torch

    if allocator == "freehold":
        import freehold.torch

        freehold.torch.enable()
        assert torch.cuda.get_allocator_backend() == "freehold", "the extension for this PyTorch is missing"
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.benchmark = False
    # It prepares itself anew for each length.
    torch.backends.cuda.enable_cudnn_sdp(False)


def main(allocator: str, name: str) -> None:
    choose_allocator(allocator)
    import torch
    from models import WORKLOADS

    kind, steps = WORKLOADS[name]
    workload = kind()
    for line in sys.stdin:
        if line.strip() != "round":
            break
        torch.cuda.synchronize()
        start = time.perf_counter()
        values = workload.round(steps)
        torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        stats = torch.cuda.memory_stats()
        told = {
            "seconds_per_step": seconds / steps,
            "values": values,
            "reserved_peak": stats["reserved_bytes.all.peak"],
            "allocated_peak": stats["allocated_bytes.all.peak"],
            "retries": stats["num_alloc_retries"],
        }
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
