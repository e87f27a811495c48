"""GPU memory that has an owner.

    import freehold

    block = freehold.alloc(1 << 20)            # device memory, as an array of bytes for CuPy, Numba and PyTorch
    array = cupy.asarray(block)                # or torch.from_dlpack(block)
    weights = block.view("float32", (512, 512))    # typed, and still without a copy
    theirs = freehold.from_dlpack(tensor)      # of any library with DLPack; freehold.asarray takes __cuda_array_interface__

    cache = freehold.DeviceVec("float16")      # grows at a fixed address
    cache.resize(1 << 20)

`freehold.torch`, `freehold.cupy`, `freehold.numba` and `freehold.cuda_core` make Freehold the allocator of these libraries. All of
them share one pool and one budget in the process (`set_budget`). A free never waits for the GPU: memory is reused when the work that uses
it is complete.

`freehold.broker` shares arrays with other processes, by name and without a copy.

On a machine without a GPU, `freehold run -- python program.py` and `pytest --freehold` run programs on the software device.
"""

from __future__ import annotations

import os as _os

from ._freehold import (
    Array,
    Block,
    DeviceVec,
    Error,
    OutOfMemoryError,
    Owner,
    __version__,
    alloc,
    asarray,
    free_after_all,
    from_dlpack,
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
    "Array",
    "Block",
    "DeviceVec",
    "Error",
    "OutOfMemoryError",
    "Owner",
    "Plot",
    "alloc",
    "asarray",
    "free_after_all",
    "from_dlpack",
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
