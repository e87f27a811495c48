"""Builds the allocator of freehold.torch for the PyTorch that is installed.

    python python/build_allocator.py [--output FOLDER]

Needs g++ and the headers of PyTorch and of the CUDA runtime, which PyTorch's wheels bring. Prints the file that it
made, which depends on the versions of PyTorch and of CUDA, and not on that of Python.
"""

from __future__ import annotations

import argparse
import importlib.util
import pathlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import torch

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "freehold" / "torch"))
import extension  # noqa: E402  (it lies in a package that needs the compiled module)


def cuda_folders() -> tuple[pathlib.Path, pathlib.Path]:
    """Returns the folders of the CUDA runtime's headers and libraries: a toolkit's, or those of PyTorch's wheels."""
    from torch.utils.cpp_extension import CUDA_HOME

    major = torch.version.cuda.split(".")[0]
    wheels = pathlib.Path(torch.__file__).parent.parent / "nvidia"
    homes = [wheels / f"cu{major}", wheels / "cuda_runtime"] + ([pathlib.Path(CUDA_HOME)] if CUDA_HOME else [])
    for home in homes:
        for libraries in (home / "lib", home / "lib64"):
            if (home / "include/cuda_runtime_api.h").exists() and list(libraries.glob("libcudart.so*")):
                return home / "include", libraries
    raise SystemExit(f"no CUDA runtime with headers was found in {', '.join(map(str, homes))}")


def build(output: pathlib.Path) -> pathlib.Path:
    """Compiles the sources, and returns the file."""
    if torch.version.cuda is None:
        raise SystemExit("this PyTorch is built without CUDA: install one with CUDA")
    installed = pathlib.Path(torch.__file__).parent
    include, libraries = cuda_folders()
    runtime = next(iter(sorted(libraries.glob("libcudart.so*"))))
    # Kept for the next time: a source is compiled again when it or a header has changed.
    objects = HERE / "target" / extension.name_for(torch.__version__, torch.version.cuda).removesuffix(".so")
    objects.mkdir(parents=True, exist_ok=True)
    output.mkdir(parents=True, exist_ok=True)
    flags = ["-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-unused-parameter"]
    flags += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"]
    headers = [installed / "include", installed / "include/torch/csrc/api/include", include]
    # As system headers: their warnings are not ours.
    flags += [flag for header in headers for flag in ("-isystem", str(header))]
    # PyTorch's wheels leave out crt/host_defines.h, which Triton brings.
    triton = importlib.util.find_spec("triton")
    if triton is not None and triton.origin is not None:
        flags += ["-idirafter", str(pathlib.Path(triton.origin).parent / "backends/nvidia/include")]

    def compiled(source: pathlib.Path) -> str:
        made = objects / f"{source.stem}.o"
        inputs = [source, *source.parent.glob("allocator*.h")]
        if not made.exists() or made.stat().st_mtime < max(path.stat().st_mtime for path in inputs):
            subprocess.run(["g++", *flags, "-c", str(source), "-o", str(made)], check=True)
        return str(made)

    sources = sorted((HERE / "csrc").glob("allocator*.cpp"))
    with ThreadPoolExecutor(2) as threads:
        made = list(threads.map(compiled, sources))
    file = output / extension.name_for(torch.__version__, torch.version.cuda)
    link = ["-shared", "-Wl,--no-undefined", "-Wl,--exclude-libs,ALL", f"-L{installed / 'lib'}"]
    link += ["-ltorch_cuda", "-ltorch_cpu", "-lc10_cuda", "-lc10", str(runtime), "-ldl", "-lpthread"]
    subprocess.run(["g++", *made, *link, "-o", str(file)], check=True)
    return file


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, default=HERE / "freehold" / "torch")
    print(build(parser.parse_args().output))
