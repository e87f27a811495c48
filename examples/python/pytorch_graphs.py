"""Replays CUDA graphs beside live tensors with Freehold as PyTorch's allocator: no element of a live tensor changes.

    python3 examples/python/pytorch_graphs.py [libfreehold.so [REPLAYS]]        (or FREEHOLD_LIBRARY=libfreehold.so)

Each graph has intermediate tensors that are freed while it is captured. Tensors that are made afterwards, in the captured
stream, in another one and in the default one, must get other memory. With --plain the recipe is left at its first line, as
programs that were written before it had more: the library then asks the driver about captures itself.
"""

import ctypes
import os
import sys

from freehold_allocator import use_freehold

SIZES = [64, 1 << 12, 1 << 18, 3 << 20]
TENSORS = 16


def use_plainly(path):
    import torch

    torch.cuda.memory.change_current_allocator(
        torch.cuda.memory.CUDAPluggableAllocator(path, "freehold_alloc", "freehold_free")
    )
    return ctypes.CDLL(path)


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--plain"]
    path = arguments[0] if arguments else os.environ.get("FREEHOLD_LIBRARY", "")
    replays = int(arguments[1]) if len(arguments) > 1 else 1000
    if not os.path.isfile(path):
        print(f"{path!r} is no file: name libfreehold.so as the argument or in FREEHOLD_LIBRARY", file=sys.stderr)
        sys.exit(2)
    path = os.path.abspath(path)
    library = use_plainly(path) if "--plain" in sys.argv else use_freehold(path)
    import torch

    torch.cuda.synchronize()
    captured, other = torch.cuda.Stream(), torch.cuda.Stream()
    inputs = {size: torch.ones(size, device="cuda") for size in SIZES}

    def compute(size):
        """Three intermediates that are freed in turn, and a result."""
        x = inputs[size]
        y = x * 2 + 1
        z = y * y
        del y
        w = z - x
        del z
        return w + 1

    # Warms the allocator, as every recipe for graphs says.
    with torch.cuda.stream(captured):
        for size in SIZES:
            compute(size)
    torch.cuda.synchronize()
    graphs, results = [], []
    for size in SIZES:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=captured):
            results.append(compute(size))
        graphs.append(graph)
    live = []
    for stream in [captured, other, torch.cuda.default_stream()]:
        with torch.cuda.stream(stream):
            live += [torch.full((size,), 7.0, device="cuda") for size in SIZES for _ in range(TENSORS)]
    torch.cuda.synchronize()
    for _ in range(replays):
        for graph in graphs:
            graph.replay()
    torch.cuda.synchronize()
    changed = sum(int((tensor != 7).sum().item()) for tensor in live)
    wrong = sum(int((result != 9).sum().item()) for result in results)
    print(f"{replays} replays of {len(graphs)} graphs beside {len(live)} live tensors: "
          f"{changed} elements changed, {wrong} wrong results")
    reserved = library.freehold_reserved_bytes
    reserved.restype = ctypes.c_size_t
    before = reserved(0)
    # The graphs go, and their memory serves others.
    del graph
    graphs.clear()
    results.clear()
    torch.cuda.synchronize()
    library.freehold_trim(0, ctypes.c_size_t(0))
    print(f"{before >> 10} KiB reserved with the graphs, {reserved(0) >> 10} KiB without")
    sys.exit(1 if changed or wrong else 0)


if __name__ == "__main__":
    main()
