"""GPU memory that has an owner.

    import freehold

    block = freehold.alloc(1 << 20)            # device memory, as an array of bytes for CuPy, Numba and PyTorch
    array = cupy.asarray(block)                # or torch.from_dlpack(block)

`freehold.torch`, `freehold.cupy`, `freehold.numba` and `freehold.cuda_core` make Freehold the allocator of these libraries. All of
them share one pool and one budget in the process (`set_budget`). A free never waits for the GPU: memory is reused when the work that uses
it is complete.

On a machine without a GPU, `freehold run -- python program.py` and `pytest --freehold` run programs on the software device.
"""

from __future__ import annotations

import os as _os

from ._freehold import (
    Block,
    Error,
    OutOfMemoryError,
    Owner,
    __version__,
    alloc,
    free_after_all,
    live_bytes,
    order_after,
    owner_of,
    raw_alloc,
    raw_free,
    record_use,
    reserved_bytes,
    retire_stream,
    set_budget,
    set_tag_budget,
    tag_bytes,
    trim,
)
from ._plot import Plot, plot

__all__ = [
    "Block",
    "Error",
    "OutOfMemoryError",
    "Owner",
    "Plot",
    "alloc",
    "free_after_all",
    "include_dir",
    "library",
    "live_bytes",
    "order_after",
    "owner_of",
    "plot",
    "raw_alloc",
    "raw_free",
    "record_use",
    "reserved_bytes",
    "retire_stream",
    "set_budget",
    "set_tag_budget",
    "tag_bytes",
    "trim",
]

_FOLDER = _os.path.dirname(_os.path.abspath(__file__))


def library() -> str:
    """Returns the path of libfreehold.so, for C, C++ and ctypes. It is the library that this package itself uses."""
    return _os.path.join(_FOLDER, "lib", "libfreehold.so")


def include_dir() -> str:
    """Returns the folder with freehold.h and freehold/check.h."""
    return _os.path.join(_FOLDER, "include")
