"""PyTorch's allocator, announced: a tensor is freed in one stream while another stream still reads it, and its memory is used again.

`freehold check -- python torch_pool.py [copy|triton] [broken|recorded|waited]`, with PyTorch 2.1 or newer. The other stream copies the
tensor, or runs a Triton kernel on it: PyTorch's own kernels are machine code, which the software device does not run. `broken` is
reported as a `reuse-race`, at the copy into `again`. With `recorded` PyTorch is told of the other stream, and with `waited` the first
stream waits for it: no findings.

`cargo xtask test` does not run this one.
"""

import importlib.util
import sys
from pathlib import Path

import torch

# From the clone, where the rest of the package is not compiled.
file = Path(__file__).parents[4] / "python/freehold/check.py"
spec = importlib.util.spec_from_file_location("check", file)
check = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check)

SIZE = 1 << 20
READER, ORDER = sys.argv[1:] if len(sys.argv) == 3 else ("copy", "broken")


def tensor():
    return torch.empty(SIZE, dtype=torch.uint8, device="cuda")


def read_with_triton(to, source):
    import triton
    import triton.language as tl

    @triton.jit
    def copy_bytes(to, source, count: tl.constexpr):
        at = tl.program_id(0) * count + tl.arange(0, count)
        tl.store(to + at, tl.load(source + at))

    copy_bytes[(SIZE // 1024,)](to, source, count=1024)


before = tensor()
host = torch.full((SIZE,), 7, dtype=torch.uint8).pin_memory()
if READER == "triton":
    # The first launch compiles, and what that leaves behind refers to the tensors.
    warm = tensor()
    warm.copy_(host)
    read_with_triton(before, warm)
    torch.cuda.synchronize()
assert check.attach_torch(), "run this under freehold check"
side = torch.cuda.Stream()
first, copy = tensor(), tensor()
first.copy_(host, non_blocking=True)
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    if READER == "triton":
        read_with_triton(copy, first)
    else:
        copy.copy_(first, non_blocking=True)
if ORDER == "recorded":
    first.record_stream(side)
elif ORDER == "waited":
    torch.cuda.current_stream().wait_stream(side)
address = first.data_ptr()
del first
again = tensor()
again.copy_(host, non_blocking=True)
before.copy_(host, non_blocking=True)
torch.cuda.synchronize()
assert copy.cpu().eq(7).all()
print("reused" if again.data_ptr() == address else "not reused")
