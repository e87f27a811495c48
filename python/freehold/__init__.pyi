import os
from typing import Any, Union

from ._freehold import (
    Array as Array,
    Block as Block,
    DeviceVec as DeviceVec,
    Error as Error,
    OutOfMemoryError as OutOfMemoryError,
    Owner as Owner,
    __version__ as __version__,
    alloc as alloc,
    asarray as asarray,
    free_after_all as free_after_all,
    from_dlpack as from_dlpack,
    live_bytes as live_bytes,
    order_after as order_after,
    owner_of as owner_of,
    raw_alloc as raw_alloc,
    raw_free as raw_free,
    record_use as record_use,
    reserved_bytes as reserved_bytes,
    retire_stream as retire_stream,
    set_budget as set_budget,
    set_tag_budget as set_tag_budget,
    tag_bytes as tag_bytes,
    trim as trim,
)

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

def library() -> str: ...
def include_dir() -> str: ...

class Plot:
    svg: str
    def save(self, path: Union[str, os.PathLike[str]]) -> None: ...

def plot(snapshot: Any, *, device: int = 0) -> Plot: ...
