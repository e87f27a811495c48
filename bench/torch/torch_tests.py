"""Runs PyTorch's own tests of its allocator with Freehold as the allocator.

    python bench/torch/torch_tests.py PYTORCH/test/test_cuda.py [-k PATTERN]

The file comes with PyTorch's repository, at the tag of the installed version. Without -k it runs the tests about memory.
"""

from __future__ import annotations

import pathlib
import runpy
import sys

# Names of tests about the allocator: statistics, snapshots, graphs, pools, streams.
PATTERNS = ["memory", "caching", "graph", "mempool", "MemPool", "snapshot", "record_stream", "out_of_memory", "allocator"]


def main() -> None:
    if len(sys.argv) < 2 or not pathlib.Path(sys.argv[1]).exists():
        raise SystemExit("expected the path of PyTorch's test/test_cuda.py, of the version that is installed")
    file = pathlib.Path(sys.argv[1]).resolve()
    import freehold.torch

    freehold.torch.enable()
    patterns = sys.argv[2:] or [word for pattern in PATTERNS for word in ("-k", pattern)]
    sys.argv = [str(file), "-v", *patterns]
    sys.path.insert(0, str(file.parent))
    runpy.run_path(str(file), run_name="__main__")


if __name__ == "__main__":
    main()
