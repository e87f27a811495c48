"""Compiles the extensions of freehold.torch for the PyTorch that is installed: its allocator, and its operators for the software device.

    python python/build_extensions.py [--output FOLDER]

Needs g++ and the headers of PyTorch and of the CUDA runtime, which PyTorch's wheels bring. Prints the files that it made, which
depend on the versions of PyTorch and of CUDA, and not on that of Python.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import pathlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import torch

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "freehold" / "torch"))
import extension  # noqa: E402  (it lies in a package that needs the compiled module)

INSTALLED = pathlib.Path(torch.__file__).parent

# What the compiler and the linker are told of each part, whose sources are csrc/PART*.cpp.
PARTS = {
    "allocator": (["-Wno-unused-parameter"], ["-Wl,--no-undefined", "-Wl,--exclude-libs,ALL", "-lpthread"]),
    "operators": (["-DAT_PER_OPERATOR_HEADERS"], ["-Wl,--allow-shlib-undefined"]),
}


def runtime() -> tuple[pathlib.Path, pathlib.Path]:
    """Returns the headers and the library of the CUDA runtime: a toolkit's, or those of PyTorch's wheels."""
    from torch.utils.cpp_extension import CUDA_HOME

    wheels = INSTALLED.parent / "nvidia"
    major = torch.version.cuda.split(".")[0]
    homes = [wheels / f"cu{major}", wheels / "cuda_runtime"] + ([pathlib.Path(CUDA_HOME)] if CUDA_HOME else [])
    for home in homes:
        for libraries in (home / "lib", home / "lib64"):
            found = sorted(libraries.glob("libcudart.so*"))
            if found and (home / "include/cuda_runtime_api.h").exists():
                return home / "include", found[0]
    raise SystemExit(f"no CUDA runtime with headers was found in {', '.join(map(str, homes))}")


def flags(headers: pathlib.Path) -> list[str]:
    """Returns the compiler's flags for all parts."""
    found = ["-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-MMD"]
    found.append(f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}")
    # As system headers: their warnings are not ours.
    for folder in (INSTALLED / "include", INSTALLED / "include/torch/csrc/api/include", headers):
        found += ["-isystem", str(folder)]
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


def build(part: str, output: pathlib.Path) -> pathlib.Path:
    """Compiles the sources of a part, and returns the file."""
    headers, library = runtime()
    compiler_flags, linker_flags = PARTS[part]
    name = extension.name_for(torch.__version__, torch.version.cuda, part)
    # Kept for the next time.
    objects = HERE / "target" / name.removesuffix(".so")
    for folder in (objects, output):
        folder.mkdir(parents=True, exist_ok=True)
    options = flags(headers) + compiler_flags

    def compiled(source: pathlib.Path) -> str:
        made = objects / f"{source.stem}.o"
        if not is_current(made):
            subprocess.run(["g++", *options, "-c", str(source), "-o", str(made)], check=True)
        return str(made)

    with ThreadPoolExecutor(2) as threads:
        made = list(threads.map(compiled, sorted((HERE / "csrc").glob(f"{part}*.cpp"))))
    # A process that has the old file loaded keeps it.
    file, fresh = output / name, output / f"{name}.new"
    link = ["-shared", "-s", *linker_flags, f"-L{INSTALLED / 'lib'}", "-ltorch_cuda", "-ltorch_cpu", "-lc10_cuda", "-lc10"]
    # Only the allocator calls the CUDA runtime itself.
    link += ["-Wl,--as-needed", str(library), "-ldl"]
    subprocess.run(["g++", *made, *link, "-o", str(fresh)], check=True)
    fresh.replace(file)
    return file


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, default=HERE / "freehold" / "torch")
    arguments = parser.parse_args()
    if torch.version.cuda is None:
        raise SystemExit("this PyTorch is built without CUDA: install one with CUDA")
    for part in PARTS:
        print(build(part, arguments.output))
