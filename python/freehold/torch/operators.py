"""PyTorch's operators on the software device.

PyTorch's packages contain machine code only, which the software device cannot run. There the kernel of the CPU computes each
operator, as work of the current stream on the memory of the device: streams, events, graphs and the checker see what they see
of a kernel. A GPU keeps its own kernels.

`freehold run` and `pytest --freehold` switch this on as soon as the program imports PyTorch.
"""

from __future__ import annotations

import ctypes
import functools
import os
import warnings
from typing import Any, Callable, Optional

import torch

from . import extension

__all__ = ["enable", "is_enabled"]

_library: Optional[ctypes.CDLL] = None


def enable() -> bool:
    """Lets the CPU compute the operators of CUDA tensors, if the CUDA driver is the software device's. Returns whether it is.

    Warns if this package has no extension for the running PyTorch.
    """
    global _library
    if _library is not None:
        return True
    if os.environ.get("FREEHOLD_DEVICE") != "soft" or not torch.backends.cuda.is_built():
        return False
    version, cuda = torch.__version__, torch.version.cuda
    path = extension.find(version, cuda, "operators")
    if path is None:
        warnings.warn(extension.missing(version, cuda, "operators", "only copies run on the software device"), stacklevel=2)
        return False
    library = ctypes.CDLL(str(path))
    library.freehold_register_operators.restype = ctypes.c_char_p
    library.freehold_error_of_operators.restype = ctypes.c_char_p
    library.freehold_sleep.restype = ctypes.c_char_p
    library.freehold_sleep.argtypes = [ctypes.c_int64]
    error = library.freehold_register_operators()
    if error is not None:
        warnings.warn(f"PyTorch's operators do not run on the software device: {error.decode()}", stacklevel=2)
        return False
    _library = library
    # It would compute what has no kernel of its own here.
    torch.backends.cudnn.enabled = False
    _report_errors()
    # PyTorch launches its kernel without an operator.
    torch.cuda._sleep = _sleep
    return True


def is_enabled() -> bool:
    """Returns whether the CPU computes the operators of CUDA tensors."""
    return _library is not None


def _sleep(cycles: int) -> None:
    assert _library is not None
    error = _library.freehold_sleep(int(cycles))
    if error is not None:
        raise RuntimeError(error.decode(errors="replace"))


def _report_errors() -> None:
    """Makes the calls that wait for the device raise the error of an operator that they waited for."""
    torch.cuda.synchronize = _raising(torch.cuda.synchronize)
    for waiting in (torch.cuda.Stream, torch.cuda.Event):
        waiting.synchronize = _raising(waiting.synchronize)  # type: ignore[method-assign]


def _raising(wait: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(wait)
    def synchronize(*arguments: Any, **named: Any) -> Any:
        result = wait(*arguments, **named)
        _raise_error()
        return result

    return synchronize


def _raise_error() -> None:
    assert _library is not None
    error = _library.freehold_error_of_operators()
    if error is not None:
        raise RuntimeError(error.decode(errors="replace"))
