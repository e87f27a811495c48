"""PyTorch's allocator, announced: a tensor is freed in one stream while another stream still reads it, and its memory is used again.

With `fixed` as an argument, PyTorch is told of the other stream. The program has no kernels: those of PyTorch are machine code.
"""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[4] / "python"))
from freehold import check

SIZE = 1 << 20


def tensor():
    return torch.empty(SIZE, dtype=torch.uint8, device="cuda")


before = tensor()
assert check.attach_torch()
host = torch.zeros(SIZE, dtype=torch.uint8, pin_memory=True)
side = torch.cuda.Stream()
first, copy = tensor(), tensor()
first.copy_(host, non_blocking=True)
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    copy.copy_(first, non_blocking=True)
if "fixed" in sys.argv:
    first.record_stream(side)
address = first.data_ptr()
del first
again = tensor()
again.copy_(host, non_blocking=True)
before.copy_(host, non_blocking=True)
torch.cuda.synchronize()
print("reused" if again.data_ptr() == address else "not reused")
