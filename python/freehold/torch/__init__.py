"""Freehold as the allocator of PyTorch.

    import freehold.torch
    freehold.torch.enable()                    # before the first tensor on a GPU

Frees never wait, streams share memory without a stall, and the memory of CUDA graphs stays their own.
"""

from __future__ import annotations

import ctypes
import warnings
from typing import Any, Optional

import torch

from .. import library
from . import extension

__all__ = ["enable", "is_enabled", "live_bytes", "reserved_bytes"]

_plugged: Optional[Any] = None
"""What PyTorch was given; it must not end before the process."""

_MISSING = (
    "torch.cuda.memory_stats and memory_allocated, memory snapshots, MemPool, memory fractions, "
    'torch.compile(mode="reduce-overhead"), tensors shared between processes, and torch.OutOfMemoryError'
)


def enable() -> None:
    """Makes Freehold the allocator of all CUDA tensors. To be called before the first one is made.

    Raises RuntimeError if PyTorch has no CUDA, finds no GPU, or has used one before.
    """
    global _plugged
    if _plugged is not None:
        return
    if not torch.backends.cuda.is_built():
        raise RuntimeError("this PyTorch is built without CUDA: install one with CUDA, or remove freehold.torch.enable()")
    if torch.cuda.is_initialized():
        raise RuntimeError("PyTorch has used CUDA already: call freehold.torch.enable() before the first CUDA call")
    if not torch.cuda.is_available():
        raise RuntimeError(
            "PyTorch finds no GPU: on a machine without one, start the program with `freehold run -- python program.py`"
        )
    file = extension.find(torch.__version__, torch.version.cuda)
    if file is not None:
        _plugged = _install(str(file), library())
        return
    _plugged = _plug(library())
    warnings.warn(
        f"this freehold was not built for PyTorch {torch.__version__} (but for {_built_for()}), so it uses PyTorch's plug-in "
        f"interface, which lacks {_MISSING}",
        stacklevel=2,
    )


def is_enabled() -> bool:
    """Returns whether Freehold is PyTorch's allocator."""
    return _plugged is not None


def reserved_bytes(device: Any = None) -> int:
    """Returns the bytes that the pool has reserved from the driver on a device."""
    from .. import reserved_bytes as reserved

    return reserved(_index(device))


def live_bytes(device: Any = None) -> int:
    """Returns the bytes of live tensors on a device, and of all else that this process has allocated with Freehold."""
    from .. import live_bytes as live

    return live(_index(device))


def _index(device: Any) -> int:
    return torch.cuda.current_device() if device is None else torch.device(device).index or 0


def _built_for() -> str:
    return ", ".join(extension.available()) or "no version"


def _install(file: str, path: str) -> Any:
    """Installs Freehold through PyTorch's own allocator interface, with the extension in `file`."""
    functions = ctypes.CDLL(file)
    functions.freehold_torch_install.restype = ctypes.c_char_p
    error = functions.freehold_torch_install(path.encode())
    if error is not None:
        raise RuntimeError(f"Freehold cannot be PyTorch's allocator: {error.decode()}")
    return functions


def _plug(path: str) -> Any:
    functions = ctypes.CDLL(path)

    def address(function: Any) -> Optional[int]:
        return ctypes.cast(function, ctypes.c_void_p).value

    plugged = torch.cuda.memory.CUDAPluggableAllocator(path, "freehold_alloc", "freehold_free")
    allocator = plugged.allocator()
    # Without this PyTorch tells the allocator of no other stream that uses a tensor.
    allocator.set_record_stream_fn(address(functions.freehold_record_use))
    # The memory of a graph stays its own until the graph is gone.
    allocator.set_begin_allocate_to_pool(address(functions.freehold_pool_begin))
    allocator.set_end_allocate_to_pool_fn(address(functions.freehold_pool_end))
    allocator.set_release_pool(address(functions.freehold_pool_release))
    functions.freehold_announce_captures()
    torch.cuda.memory.change_current_allocator(plugged)
    return plugged
