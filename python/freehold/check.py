"""Tells `freehold check` what a memory pool does with its blocks.

A pool takes large allocations from the driver and hands out parts of them. The driver does not see those parts, so a checker
cannot tell a block that is in use from one that was freed. Three functions tell it:

    from freehold import check

    class Pool:
        def allocate(self, size, stream):
            pointer = ...                                       # waits for events, or makes the stream wait for them
            check.handed_out(self, pointer, size, stream)       # last, when the stream may use the block
            return pointer

        def free(self, pointer, stream):
            check.freed(self, pointer, stream)                  # first, before another thread can take the block
            ...

PyTorch's allocator is announced with one call, before the first tensor:

    check.attach_torch()

Without the checker the functions do nothing. The file needs no other one, and may be copied into a project. The same functions
for C and C++ are in `freehold/check.h`.
"""

from __future__ import annotations

import ctypes
from typing import Any, Callable, Optional

__all__ = ["attach_torch", "freed", "handed_out", "is_checked", "used"]

_Function = Optional[Callable[..., None]]


def _implementation(name: str, *arguments: Any) -> _Function:
    """Returns a function of the checker, or None without one."""
    try:
        function = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):
        # Without the checker; or on a system whose loader cannot search the whole process, which has none.
        return None
    function.argtypes, function.restype = arguments, None
    return function


_handed_out = _implementation(
    "freehold_check_handed_out", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p
)
_freed = _implementation("freehold_check_freed", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_used = _implementation("freehold_check_used", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


def is_checked() -> bool:
    """Returns whether this process runs under the checker."""
    return _handed_out is not None


def handed_out(pool: object, pointer: int, size: int, stream: int = 0) -> None:
    """Announces that a block now belongs to the caller of the pool.

    Work that is submitted to `stream` from now on may use its `size` bytes, whose content is undefined. Call it as the last step
    of an allocation, after the stream was made to wait for earlier users; a pool that fills its blocks does so afterwards.
    Null pointers and blocks of zero bytes are ignored: such a block may have the address of another one.

    `pool` is any object that identifies the pool, `pointer` an address on the device, and `stream` a `cudaStream_t` or
    `CUstream` as a number; 0 is the legacy default stream.
    """
    if _handed_out is not None:
        _handed_out(id(pool), pointer, size, stream)


def freed(pool: object, pointer: int, stream: int = 0) -> None:
    """Announces that the block at `pointer` goes back to the pool, in the order of `stream`.

    Work that was submitted to the stream before may still use the block, later work may not. Call it as the first step of a free.
    """
    if _freed is not None:
        _freed(id(pool), pointer, stream)


def used(pool: object, pointer: int, stream: int) -> None:
    """Announces that the pool was told that work of `stream` uses the block too (`record_stream` in PyTorch).

    The call orders nothing: if the block is handed out before that work is done, a race is reported as without it.
    """
    if _used is not None:
        _used(id(pool), pointer, stream)


_is_torch_attached = False


def attach_torch() -> bool:
    """Announces the blocks of PyTorch's CUDA allocator, those that exist and those to come. Returns whether there is a checker.

    Call it once, before or after the first tensor. It uses the trace callbacks of PyTorch 2.1 and later.
    """
    global _is_torch_attached
    if not is_checked() or _is_torch_attached:
        return is_checked()
    import torch

    # Blocks of `cudaMallocAsync` are the driver's, which the checker sees; another allocator announces its own.
    if torch.cuda.get_allocator_backend() != "native":
        return True
    try:
        from torch.cuda import _gpu_trace as trace
    except ImportError:
        from torch.utils import _cuda_trace as trace  # PyTorch 2.1 and 2.2.
    pool = _TorchBlocks(torch)
    pool.announce_existing()
    torch._C._activate_gpu_trace()
    trace.register_callback_for_memory_allocation(pool.allocated)
    trace.register_callback_for_memory_deallocation(pool.freed)
    _is_torch_attached = True
    return True


class _TorchBlocks:
    """The blocks that PyTorch's allocator has handed out."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._streams: dict[int, int] = {}

    def _active(self) -> dict[int, tuple[int, int]]:
        """Returns the requested size and the stream of each block with an owner, by its address."""
        found = {}
        for segment in self._torch.cuda.memory_snapshot():
            address = segment["address"]
            for block in segment["blocks"]:
                if block["state"] == "active_allocated":
                    found[address] = (block.get("requested_size") or block["size"], segment["stream"])
                address += block["size"]
        return found

    def announce_existing(self) -> None:
        if self._torch.cuda.is_initialized():
            for address, (size, stream) in self._active().items():
                self._hand_out(address, size, stream)

    def _hand_out(self, address: int, size: int, stream: int) -> None:
        self._streams[address] = stream
        handed_out(self, address, size, stream)

    def allocated(self, address: int) -> None:
        # The callback has the address alone.
        size, stream = self._active().get(address, (0, 0))
        if size > 0:
            self._hand_out(address, size, stream)

    def freed(self, address: int) -> None:
        # PyTorch gives a block back in the order of the stream that it was allocated in, whichever is current.
        stream = self._streams.pop(address, None)
        if stream is not None:
            freed(self, address, stream)
