"""Builds PyTorch's operators for the software device, for the PyTorch that is installed.

    python python/build_operators.py [--output FOLDER]

Needs g++ and the headers of PyTorch and of the CUDA runtime, which PyTorch's wheels bring. Prints the file that it made, which
depends on the versions of PyTorch and of CUDA, and not on that of Python.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import pathlib
import subprocess
from concurrent.futures import ThreadPoolExecutor

import torch

from build_allocator import HERE, cuda_folders, extension


def flags() -> list[str]:
    """Returns the compiler's flags."""
    installed = pathlib.Path(torch.__file__).parent
    found = ["-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-MMD", "-DAT_PER_OPERATOR_HEADERS"]
    found.append(f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}")
    # As system headers: their warnings are not ours.
    for headers in (installed / "include", installed / "include/torch/csrc/api/include", cuda_folders()[0]):
        found += ["-isystem", str(headers)]
    # PyTorch's wheels leave out crt/host_defines.h, which Triton brings.
    triton = importlib.util.find_spec("triton")
    if triton is not None and triton.origin is not None:
        found += ["-idirafter", str(pathlib.Path(triton.origin).parent / "backends/nvidia/include")]
    return found


def is_current(made: pathlib.Path) -> bool:
    """Returns whether an object file is newer than the files that it was made of, which the compiler has listed."""
    rule = made.with_suffix(".d")
    if not (made.exists() and rule.exists()):
        return False
    names = rule.read_text().replace("\\\n", " ").split(":", 1)[1].split()
    return all(os.path.exists(name) and os.path.getmtime(name) <= made.stat().st_mtime for name in names)


def build(output: pathlib.Path) -> pathlib.Path:
    """Compiles the sources, and returns the file."""
    if torch.version.cuda is None:
        raise SystemExit("this PyTorch is built without CUDA: install one with CUDA")
    name = extension.name_for(torch.__version__, torch.version.cuda, "operators")
    # Kept for the next time.
    objects = HERE / "target" / name.removesuffix(".so")
    objects.mkdir(parents=True, exist_ok=True)
    output.mkdir(parents=True, exist_ok=True)
    options = flags()

    def compiled(source: pathlib.Path) -> str:
        made = objects / f"{source.stem}.o"
        if not is_current(made):
            subprocess.run(["g++", *options, "-c", str(source), "-o", str(made)], check=True)
        return str(made)

    with ThreadPoolExecutor(2) as threads:
        made = list(threads.map(compiled, sorted((HERE / "csrc").glob("operators*.cpp"))))
    # A process that has the old file loaded keeps it.
    file, fresh = output / name, output / f"{name}.new"
    link = ["-shared", "-s", "-Wl,--allow-shlib-undefined", f"-L{pathlib.Path(torch.__file__).parent / 'lib'}"]
    link += ["-ltorch_cuda", "-ltorch_cpu", "-lc10_cuda", "-lc10", "-ldl"]
    subprocess.run(["g++", *made, *link, "-o", str(fresh)], check=True)
    fresh.replace(file)
    return file


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, default=HERE / "freehold" / "torch")
    print(build(parser.parse_args().output))
