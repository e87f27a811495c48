"""What freehold.torch.enable says when it cannot do what it is asked. Each case is a process of its own."""

import subprocess
import sys

import torch_support  # noqa: F401  (skips these tests without PyTorch)
from torch_support import torch

import pytest

from freehold.torch import extension


def output_of(program: str, **environment: str) -> str:
    """Runs a program, and returns what it printed."""
    import os

    command = [sys.executable, "-W", "always", "-c", "import torch, freehold.torch\n" + program]
    ended = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout + ended.stderr


def test_after_the_first_use_of_cuda_it_is_too_late():
    text = output_of("""
torch.cuda.init()
try:
    freehold.torch.enable()
except RuntimeError as error:
    print(error)
""")
    assert "call freehold.torch.enable() before the first CUDA call" in text


def test_enabling_twice_is_enabling_once():
    text = output_of("""
freehold.torch.enable()
freehold.torch.enable()
print(torch.empty(1000, device="cuda").numel(), freehold.torch.is_enabled())
""")
    assert "1000 True" in text


def test_without_a_file_for_this_version_the_plug_in_interface_is_used():
    text = output_of("""
freehold.torch.extension.find = lambda *_: None
freehold.torch.enable()
print(torch.empty(1000, device="cuda").numel(), torch.cuda.get_allocator_backend())
""")
    assert "1000 pluggable" in text
    assert f"was not built for PyTorch {torch.__version__}" in text
    assert "torch.cuda.memory_stats" in text


def test_without_a_gpu_it_says_how_to_get_one():
    text = output_of(
        """
torch.cuda.is_available = lambda: False
try:
    freehold.torch.enable()
except RuntimeError as error:
    print(error)
"""
    )
    assert "PyTorch finds no GPU" in text and "freehold run" in text


@pytest.mark.skipif("not __import__('torch_support').has_extension()", reason="the allocator is not built")
def test_another_library_is_refused():
    text = output_of(f"""
freehold.torch.library = lambda: {str(extension.find(torch.__version__, torch.version.cuda))!r}
try:
    freehold.torch.enable()
except RuntimeError as error:
    print(error)
""")
    assert "lacks freehold_alloc: install a freehold whose parts have one version" in text


@pytest.mark.skipif("not __import__('torch_support').has_extension()", reason="the allocator is not built")
def test_a_tensor_that_outlives_python_is_no_error():
    text = output_of("""
import sys
freehold.torch.enable()
sys.modules["kept"] = torch.empty(1 << 20, device="cuda")
kept = [torch.empty(9, device="cuda")]
kept.append(kept)
print("end")
""")
    assert "end" in text and "could not be freed" not in text


@pytest.mark.skipif("not __import__('torch_support').has_extension()", reason="the allocator is not built")
def test_a_forked_child_frees_nothing():
    text = output_of("""
import os
freehold.torch.enable()
tensor = torch.arange(256, dtype=torch.uint8).cuda()
child = os.fork()
if child == 0:
    del tensor
    print("child", flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(torch.cuda.memory_allocated(), tensor.cpu()[255].item())
""")
    assert "child" in text and "512 255" in text and "could not be freed" not in text


def test_names_of_files_are_those_of_versions():
    assert extension.name_for("2.11.0+cu130", "13.0") == "_allocator_2_11_cu13.so"
    assert extension.name_for("2.12.1", "12.8", "operators") == "_operators_2_12_cu12.so"
