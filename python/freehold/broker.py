"""Arrays for other processes, by name and without a copy: a broker keeps the memory when its publisher is gone.

    freehold.broker.publish("model", model.state_dict())      # copied once, on the device
    lease = freehold.broker.lease("model")                    # in any process of this user
    model.load_state_dict(lease.torch(), assign=True)         # the broker's memory itself
    freehold.broker.update("model", model.state_dict())       # the next generation: readers keep theirs
    freehold.broker.put("model.safetensors", "other")         # from a file, as `freehold put --as` does

`freehold serve` runs a broker. A lease pickles as its name, so that it travels through multiprocessing, Dask and Ray: its first use in
another process leases the name again. Memory of a read lease is read-only: the device refuses a write.
"""

from __future__ import annotations

import atexit as _atexit
import os as _os
import threading as _threading
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Optional, Union

import freehold as _freehold

from . import _freehold as _native

__all__ = ["Broker", "Lease", "Name", "Stats", "connect", "lease", "publish", "put", "update"]

# As allocations of CUDA are.
_ALIGNMENT = 256

# Name, type, shape and strides in elements, and the offset in bytes.
_Entry = tuple[str, str, list[int], list[int], int]

_lock = _threading.Lock()
_brokers: dict[tuple[Optional[str], Optional[int]], Broker] = {}


class Name(NamedTuple):
    """A name at a broker. `process` is the publisher's, or 0 if it is gone."""

    name: str
    nbytes: int
    process: int
    readers: int
    writers: int


class Stats(NamedTuple):
    """What a broker keeps: bytes that are leased, that have a name, and that are being reclaimed, and the numbers of connected
    processes, names and leases."""

    leased: int
    named: int
    reclaiming: int
    processes: int
    names: int
    leases: int


def connect(socket: Union[str, _os.PathLike[str], None] = None, *, device: Optional[int] = None) -> Broker:
    """Returns the connection of this process to a broker: this user's, unless a socket is given, as `freehold serve --socket` takes it.
    FREEHOLD_BROKER names another default. `device` is the device whose memory the broker leases, which is found if none is given.

    Raises ConnectionError if no broker answers, and freehold.Error if the broker's memory is on another device."""
    key = (None if socket is None else _os.path.abspath(_os.fspath(socket)), device)
    with _lock:
        # A child of fork cannot use the connection of its parent, and another broker may have taken the place of one that ended.
        if key in _brokers and _brokers[key]._is_usable():
            return _brokers[key]
        broker = _brokers[key] = Broker(socket, device=device)
        return broker


@_atexit.register
def _finish() -> None:
    """Waits for copies to published memory: a process that ends before they are done has not published."""
    for broker in _brokers.values():
        broker._finish()
    _brokers.clear()


def publish(name: str, arrays: Any, *, policy: str = "restore", replace: bool = False) -> None:
    """Publishes arrays at this user's broker: see Broker.publish."""
    connect().publish(name, arrays, policy=policy, replace=replace)


def update(name: str, arrays: Any) -> int:
    """Publishes the next generation of a name at this user's broker: see Broker.update."""
    return connect().update(name, arrays)


def put(path: Union[str, _os.PathLike[str]], name: str, *, replace: bool = False, update: bool = False) -> int:
    """Publishes a safetensors file at this user's broker: see Broker.put."""
    return connect().put(path, name, replace=replace, update=update)


def lease(name: str, *, access: str = "read") -> Lease:
    """Leases arrays from this user's broker: see Broker.lease."""
    return connect().lease(name, access=access)


class Broker:
    """A connection to a broker."""

    def __init__(self, socket: Union[str, _os.PathLike[str], None] = None, *, device: Optional[int] = None) -> None:
        self._native = _native.Connection(None if socket is None else _os.fspath(socket), device)
        self._process = _os.getpid()
        self._has_published = False

    @property
    def socket(self) -> str:
        """The path of the broker's socket."""
        return str(self._native.socket)

    @property
    def device(self) -> int:
        """The number of the device whose memory the broker leases."""
        return int(self._native.device)

    def publish(self, name: str, arrays: Any, *, policy: str = "restore", replace: bool = False) -> None:
        """Copies device arrays to memory of the broker, on the device, and publishes that under a name.

        `arrays` maps names to arrays of any library with DLPack or `__cuda_array_interface__`, such as a `state_dict`; a single array
        gets the name "". Arrays that share memory share it afterwards, too. Waits for nothing: readers wait, on the device, for the
        work that was submitted before. `policy` says what happens to a write lease, see the broker's manual: "restore", "drop" or
        "open". `replace` drops the name first; readers keep the old memory.

        Raises ValueError if the name is taken, TypeError for arrays that are not on the device, and OutOfMemoryError if the broker has
        no room."""
        entries, parts = _packed({"": arrays} if _is_array(arrays) else dict(arrays))
        if replace:
            try:
                self.drop(name)
            except LookupError:
                pass
        self._native.publish(name, entries, parts, policy, False)
        self._has_published = True

    def update(self, name: str, arrays: Any) -> int:
        """Publishes arrays as the next generation of a name with the policy "restore", and returns its number. The arrays may differ in
        number, type and shape from those of the current generation. Readers keep that one until they lease the name again; a new
        lease gets one generation or the other, and never a part. Waits until the arrays are copied.

        Raises LookupError if there is no such name, and ValueError if it has another policy, besides what `publish` raises."""
        entries, parts = _packed({"": arrays} if _is_array(arrays) else dict(arrays))
        return int(self._native.publish(name, entries, parts, "restore", True))

    def put(
        self, path: Union[str, _os.PathLike[str]], name: str, *, replace: bool = False, update: bool = False
    ) -> int:
        """Publishes the tensors of a safetensors file under a name, with the policy "restore", and returns the generation. `replace`
        drops the name before; `update` publishes the next generation of it.

        Raises ValueError if the file is damaged or the name is taken, and OSError if the file cannot be read."""
        if replace and update:
            raise ValueError("a set is replaced or updated: pass one of both")
        return int(self._native.put(_os.fspath(path), name, replace, update))

    def lease(self, name: str, *, access: str = "read") -> Lease:
        """Leases the arrays that are published under a name: their current generation, which "model@8" requires to be 8.
        `access="write"` is for names with the policy "open", whose leases all write the same memory.

        Raises LookupError if there is no such name, and ValueError if no arrays are published under it, or if another generation is
        current."""
        found = Lease(self.socket, name, access)
        found._open(self)
        return found

    def lease_bytes(self, name: str, *, access: str = "read") -> _freehold.Array:
        """Leases the memory under a name as an array of bytes, whichever program published it. The lease ends with the last array."""
        array: _freehold.Array = self._native.lease(name, access).view("uint8")
        return array

    def drop(self, name: str) -> None:
        """Removes a name; its memory is freed when the last lease ends. Raises LookupError if there is none."""
        self._native.drop(name)

    def names(self) -> list[Name]:
        """Returns what is published."""
        fields = [line.split("\t") for line in self._native.lines()]
        return [Name(name, int(size), int(process), int(r), int(w)) for name, size, _, process, r, w, *_ in fields]

    def stats(self) -> Stats:
        """Returns how much the broker keeps."""
        return Stats(*self._native.stats())

    def _is_usable(self) -> bool:
        if self._process != _os.getpid():
            return False
        try:
            self._native.stats()
        except ConnectionError:
            return False
        return True

    def _finish(self) -> None:
        if self._has_published and self._process == _os.getpid():
            try:
                self._native.synchronize()
            except _freehold.Error:
                # The device failed: what was published is lost, as the readers are told.
                pass

    def __repr__(self) -> str:
        return f"<freehold.broker.Broker at {self.socket}, device {self.device}>"


class Lease(Mapping[str, "_freehold.Array"]):
    """Arrays of another process, by name. The memory stays as long as the lease, or one of its arrays, does.

    It pickles as its name: where it is unpickled, the first use leases the name again, from the broker at the same socket. So a process
    that only passes it on, such as Dask's scheduler, needs no device."""

    def __init__(self, socket: str, name: str, access: str = "read") -> None:
        self.name = name
        self._socket, self._access, self._lock = socket, access, _threading.Lock()
        self._taken: Optional[tuple[Any, dict[str, Any]]] = None
        self._is_closed = False

    def _open(self, broker: Optional[Broker] = None) -> tuple[Any, dict[str, Any]]:
        """Returns the memory and the list of its arrays, and leases it before if that was not done."""
        with self._lock:
            if self._is_closed:
                raise ValueError("the lease was closed")
            if self._taken is None:
                self._taken = _lease(broker or connect(self._socket), self.name, self._access)
            return self._taken

    @property
    def nbytes(self) -> int:
        """The size of the leased memory."""
        return int(self._open()[0].nbytes)

    @property
    def generation(self) -> int:
        """How often the name had been published when it was leased: 1, and one more after each `update`."""
        return int(self._open()[0].generation)

    @property
    def is_closed(self) -> bool:
        """Whether the lease was closed."""
        return self._is_closed

    def __getitem__(self, key: str) -> _freehold.Array:
        native, arrays = self._open()
        if key not in arrays:
            raise KeyError(f"{self.name} has no array {key!r}")
        entry = arrays[key]
        dtype, shape, strides, offset = entry
        array: _freehold.Array = native.view(dtype, shape, strides=strides, offset=offset)
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._open()[1])

    def __len__(self) -> int:
        return len(self._open()[1])

    def torch(self) -> dict[str, Any]:
        """Returns the arrays as tensors of PyTorch, in its current stream."""
        import torch

        return {key: torch.from_dlpack(array) for key, array in self.items()}

    def cupy(self) -> dict[str, Any]:
        """Returns the arrays as those of CuPy, in its current stream."""
        import cupy

        return {key: cupy.asarray(array) for key, array in self.items()}

    def numba(self) -> dict[str, Any]:
        """Returns the arrays as device arrays of Numba."""
        from numba import cuda

        return {key: cuda.as_cuda_array(array, sync=False) for key, array in self.items()}

    def close(self) -> None:
        """Ends the lease, after the work submitted so far; does not wait. Raises BufferError while arrays use it."""
        with self._lock:
            if self._taken is not None:
                self._taken[0].close()
            self._taken, self._is_closed = None, True

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return Lease, (self._socket, self.name, self._access)

    def __repr__(self) -> str:
        if self._is_closed:
            return f"<freehold.broker.Lease {self.name!r}, closed>"
        if self._taken is None:
            return f"<freehold.broker.Lease {self.name!r}, not used yet>"
        native, arrays = self._taken
        count = f"{len(arrays)} array" if len(arrays) == 1 else f"{len(arrays)} arrays"
        return f"<freehold.broker.Lease {self.name!r}: {count}, {native.nbytes} bytes, to {self._access}>"


def _lease(broker: Broker, name: str, access: str) -> tuple[Any, dict[str, Any]]:
    """Leases memory. Returns it with the list of its arrays."""
    before = None
    if access == "write":
        # A write lease of another policy is new memory, with whatever it held before.
        before = broker._native.lease(name, "read").manifest()
        policy = before[0]
        if policy != "open":
            raise ValueError(f"{name} has the policy {policy!r}: publish it with policy='open' to write it in place")
    native = broker._native.lease(name, access)
    manifest = native.manifest()
    if before is not None and manifest != before:
        raise ValueError(f"{name} was replaced during the call: lease it again")
    return native, {key: (dtype, tuple(shape), strides, offset) for key, dtype, shape, strides, offset in manifest[1]}


def _is_array(value: Any) -> bool:
    return hasattr(value, "__dlpack__") or hasattr(value, "__cuda_array_interface__")


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT


def _on_device(key: str, value: Any) -> _freehold.Array:
    """Returns an array of another library as one of ours."""
    if isinstance(value, _freehold.Array):
        return value
    # Parameters of a model: DLPack refuses tensors that require gradients.
    value = value.detach() if hasattr(value, "detach") else value
    try:
        if hasattr(value, "__dlpack__"):
            return _freehold.from_dlpack(value)
        return _freehold.asarray(value)
    except (BufferError, TypeError) as error:
        raise TypeError(f"array {key!r} cannot be published: {error}") from error


def _span(array: _freehold.Array) -> int:
    """Returns the bytes from the first element to the end of the last one."""
    if not array.size:
        return 0
    item = array.nbytes // array.size
    return sum((length - 1) * stride for length, stride in zip(array.shape, array.strides)) + item


def _packed(arrays: dict[str, Any]) -> tuple[list[_Entry], list[tuple[_freehold.Array, int]]]:
    """Returns the list of the arrays, and those with bytes of their own with their offsets."""
    if not arrays:
        raise ValueError("there is nothing to publish: pass at least one array")
    ours = {str(key): _on_device(str(key), value) for key, value in arrays.items()}
    offset = 0
    places: dict[tuple[int, int], int] = {}
    parts: list[tuple[_freehold.Array, int]] = []
    entries: list[_Entry] = []
    for key, array in ours.items():
        span = _span(array)
        place = places.get((array.ptr, span))
        if place is None:
            place = places[array.ptr, span] = offset
            if span:
                parts.append((array, place))
            offset = _aligned(offset + span)
        item = array.nbytes // array.size if array.size else 1
        strides = [stride // item for stride in array.strides] if array.size else [1] * array.ndim
        entries.append((key, array.dtype, list(array.shape), strides, place))
    return entries, parts
