"""What the tests of freehold.torch share: what the device can do, and Freehold as PyTorch's allocator."""

import contextlib
import ctypes
import functools
import threading

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: see CONTRIBUTING.md")

import freehold.torch  # noqa: E402
from freehold.torch import extension  # noqa: E402

MIB = 1 << 20


def require_extension() -> None:
    """Makes Freehold the allocator, or skips the tests of a module."""
    if not torch.cuda.is_available():
        pytest.skip("PyTorch finds no GPU: run with `freehold run --device soft`", allow_module_level=True)
    if not has_extension():
        pytest.skip("the allocator is not built: run python/build_extensions.py", allow_module_level=True)
    freehold.torch.enable()


def has_extension() -> bool:
    """Whether the allocator is built for this PyTorch."""
    return extension.find(torch.__version__, torch.version.cuda) is not None


@functools.cache
def has_kernels() -> bool:
    """Whether PyTorch's own kernels run, as they do on a GPU."""
    try:
        torch.ones(4, device="cuda").sum().item()
    except RuntimeError:
        return False
    return True


needs_kernels = pytest.mark.skipif("not __import__('torch_support').has_kernels()", reason="needs PyTorch's own kernels")


def empty(size: int, device: str = "cuda") -> "torch.Tensor":
    """Returns a tensor of so many bytes."""
    return torch.empty(size, dtype=torch.uint8, device=device)


def filled(size: int, value: int) -> "torch.Tensor":
    """Returns a tensor of so many bytes with this value, without a kernel."""
    return torch.full((size,), value, dtype=torch.uint8).cuda()


def allocated() -> int:
    return torch.cuda.memory_allocated()


class Graph:
    """A CUDA graph: PyTorch's, or the same by the runtime's functions where PyTorch's kernels do not run, since the
    beginning of PyTorch's captures launches one."""

    def __init__(self) -> None:
        self._graph = torch.cuda.CUDAGraph() if has_kernels() else None
        self._pool = None
        self._executable = ctypes.c_void_p()

    @contextlib.contextmanager
    def capture(self, pool=None, stream=None):
        if self._graph is not None:
            with torch.cuda.graph(self._graph, pool=pool, stream=stream):
                yield
            return
        self._pool, stream = pool or torch.cuda.graph_pool_handle(), stream or torch.cuda.Stream()
        torch.cuda.synchronize()
        handle, captured = ctypes.c_void_p(stream.cuda_stream), ctypes.c_void_p()
        with torch.cuda.stream(stream):
            torch._C._cuda_beginAllocateCurrentStreamToPool(0, self._pool)
            _call("cudaStreamBeginCapture", handle, 0)
            yield
            _call("cudaStreamEndCapture", handle, ctypes.byref(captured))
            torch._C._cuda_endAllocateToPool(0, self._pool)
        _call("cudaGraphInstantiate", ctypes.byref(self._executable), captured, ctypes.c_uint64(0))
        _call("cudaGraphDestroy", captured)

    def pool(self):
        return self._pool if self._graph is None else self._graph.pool()

    def replay(self) -> None:
        if self._graph is not None:
            self._graph.replay()
        else:
            _call("cudaGraphLaunch", self._executable, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))

    def __del__(self) -> None:
        if self._executable:
            _call("cudaGraphExecDestroy", self._executable)
            torch._C._cuda_releasePool(0, self._pool)


def _call(name: str, *arguments) -> None:
    """Calls the runtime that PyTorch has loaded."""
    runtime = ctypes.CDLL(f"libcudart.so.{torch.version.cuda.split('.')[0]}")
    code = getattr(runtime, name)(*arguments)
    assert code == 0, f"{name} failed with error {code}"


@contextlib.contextmanager
def blocked(stream: "torch.cuda.Stream"):
    """Holds up a stream: work that is submitted to it inside runs after the end."""
    is_over = threading.Event()
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: is_over.wait() and None)
    _call("cudaLaunchHostFunc", ctypes.c_void_p(stream.cuda_stream), function, None)
    try:
        yield
    finally:
        is_over.set()
        # Not before: the stream calls the function.
        stream.synchronize()
