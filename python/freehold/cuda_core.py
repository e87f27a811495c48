"""Freehold as a memory resource of cuda.core.

    import freehold.cuda_core
    device.memory_resource = freehold.cuda_core.MemoryResource(device)
    buffer = device.allocate(1 << 20, stream=stream)

Memory is given out and freed in the order of the streams that cuda.core names. A free never waits.
"""

from __future__ import annotations

from typing import Any

from cuda import core

from . import live_bytes, raw_alloc, raw_free, reserved_bytes

__all__ = ["MemoryResource"]


class MemoryResource(core.MemoryResource):
    """Memory of Freehold's pool on a device, which is a number or cuda.core's Device."""

    def __init__(self, device: Any = 0) -> None:
        self._device_id = int(getattr(device, "device_id", device))

    def allocate(self, size: int, *, stream: Any) -> core.Buffer:
        """Returns a buffer of `size` bytes. Raises freehold.OutOfMemoryError, which says what would help."""
        # A buffer of no bytes has an address too.
        address = raw_alloc(max(size, 1), self._device_id, stream)
        return core.Buffer.from_handle(address, size, mr=self, stream=stream)

    def deallocate(self, ptr: Any, size: int, *, stream: Any) -> None:
        """Frees a buffer's memory in the order of a stream. cuda.core calls it."""
        raw_free(int(ptr), self._device_id, stream)

    @property
    def is_device_accessible(self) -> bool:
        return True

    @property
    def is_host_accessible(self) -> bool:
        return False

    @property
    def is_managed(self) -> bool:
        return False

    @property
    def device_id(self) -> int:
        return self._device_id

    def __repr__(self) -> str:
        device = self._device_id
        return (
            f"<freehold.cuda_core.MemoryResource of device {device}, {live_bytes(device)} bytes live of "
            f"{reserved_bytes(device)} reserved>"
        )
