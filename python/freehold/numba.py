"""Freehold as the memory manager of Numba-CUDA.

    from numba import cuda
    import freehold.numba
    cuda.set_memory_manager(freehold.numba.Manager)

or NUMBA_CUDA_MEMORY_MANAGER=freehold.numba in the environment. It has to be set before the first use of the GPU.

Numba does not say which streams use an array. So the memory of an array that is gone is reused when all work that was
submitted to the device before is complete; the free itself does not wait.
"""

from __future__ import annotations

import ctypes
from typing import Any

from numba import cuda
from numba.cuda.cudadrv import driver

from . import free_after_all, raw_alloc, reserved_bytes, trim

__all__ = ["Manager"]


class Manager(cuda.HostOnlyCUDAMemoryManager):
    """Memory of Freehold's pool; pinned memory as Numba allocates it."""

    def initialize(self) -> None:
        super().initialize()

    def memalloc(self, size: int) -> Any:
        device = self.context.device.id
        try:
            address = raw_alloc(max(size, 1), device)
        except MemoryError:
            # What only Numba knows to be garbage.
            self.deallocations.clear()
            address = raw_alloc(max(size, 1), device)

        def finalize() -> None:
            free_after_all(address, device)

        pointer = _pointer(address)
        return cuda.MemoryPointer(self.context, pointer, size, finalizer=finalize)

    def get_memory_info(self) -> Any:
        free, total = _memory_info()
        return cuda.MemoryInfo(free=free, total=total)

    def get_ipc_handle(self, memory: Any) -> Any:
        raise OSError("memory of Freehold is shared by publishing it at the broker, not by handles of CUDA")

    def reset(self) -> None:
        super().reset()
        trim(0, device=self.context.device.id)

    @property
    def interface_version(self) -> int:
        return 1

    def __repr__(self) -> str:
        device = self.context.device.id
        return f"<freehold.numba.Manager of device {device}, {reserved_bytes(device)} bytes reserved>"


def _pointer(address: int) -> Any:
    """The address as this version of Numba passes addresses to the driver."""
    # Numba's own CUDA target passes numbers of ctypes, unless it is told to use NVIDIA's bindings; numba-cuda always uses these.
    if getattr(driver, "USE_NV_BINDING", True):
        from cuda.bindings.driver import CUdeviceptr

        return CUdeviceptr(address)
    return ctypes.c_uint64(address)


def _memory_info() -> tuple[int, int]:
    """The free and the total memory of the current device."""
    library = ctypes.CDLL("libcuda.so.1")
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    status = library.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
    if status != 0:
        raise OSError(f"cuMemGetInfo failed with error {status}")
    return free.value, total.value


_numba_memory_manager = Manager
"""What Numba looks for in the module that NUMBA_CUDA_MEMORY_MANAGER names."""
