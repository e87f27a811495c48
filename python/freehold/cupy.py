"""Freehold as the allocator of CuPy.

    import freehold.cupy
    freehold.cupy.enable()

Arrays are then allocated in Freehold's pool. An array belongs to the stream that is current when it is made, and its memory is
reused in the order of that stream, as with CuPy's own pool. Where another stream uses an array, call `use_in`.
"""

from __future__ import annotations

import os
from typing import Any, Optional

import cupy

from . import raw_alloc, raw_free, record_use

__all__ = ["disable", "enable", "use_in"]

_streams: dict[int, Any] = {}
"""The stream of each block that CuPy holds. It lives as long as the block, which is freed in its order."""

_allocator: Optional[Any] = None
_before: Optional[Any] = None


def _alloc(size: int, device: int) -> int:
    stream = cupy.cuda.get_current_stream()
    try:
        block = raw_alloc(size, device, stream.ptr)
    except MemoryError as error:
        # What CuPy's own pool raises, with our explanation.
        raise cupy.cuda.memory.OutOfMemoryError(size, 0) from error
    _streams[block] = stream
    return block


def _free(block: int, device: int) -> None:
    stream = _streams.pop(block)
    raw_free(block, device, stream.ptr)


def enable() -> None:
    """Makes Freehold the allocator of all arrays that are made from now on. Earlier arrays keep their memory."""
    global _allocator, _before
    if _allocator is None:
        # CuPy destroys streams without a word, and the driver gives their handles to others.
        os.environ.setdefault("FREEHOLD_STREAMS", "checked")
        # Makes the context of the device, which the library uses.
        cupy.cuda.Device().synchronize()
        _allocator = cupy.cuda.PythonFunctionAllocator(_alloc, _free)
    if _before is None:
        _before = cupy.cuda.get_allocator()
    cupy.cuda.set_allocator(_allocator.malloc)


def disable() -> None:
    """Gives CuPy the allocator back that it had. Arrays of Freehold stay valid."""
    global _before
    if _before is not None:
        cupy.cuda.set_allocator(_before)
        _before = None


def use_in(array: Any, stream: Any) -> None:
    """Records that work in a stream uses an array: its memory is not reused before that work is done."""
    record_use(array.data.mem.ptr, stream)
