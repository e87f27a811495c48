"""What the tests of freehold.torch share: what the device can do, and Freehold as PyTorch's allocator."""

import functools

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: see CONTRIBUTING.md")

import freehold.torch  # noqa: E402
from freehold.torch import extension  # noqa: E402

MIB = 1 << 20


def require_extension() -> None:
    """Makes Freehold the allocator, or skips the tests of a module."""
    if not torch.cuda.is_available():
        pytest.skip("PyTorch finds no GPU: run with `freehold run --device soft`", allow_module_level=True)
    if extension.find(torch.__version__, torch.version.cuda) is None:
        pytest.skip("the allocator is not built: run python/build_allocator.py", allow_module_level=True)
    freehold.torch.enable()


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
