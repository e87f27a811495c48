"""Builds the extension with PyTorch's operators for the software device, for the PyTorch of this Python.

    python build_operators.py OUT_FOLDER

Needs a C++ compiler, the package nvidia-cuda-runtime, which PyTorch depends on, and nvidia-cuda-crt, whose headers CPATH may
name. Prints the path of the library.
"""

from __future__ import annotations

import concurrent.futures
import os
import pathlib
import subprocess
import sys

import torch
import torch.utils.cpp_extension

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "freehold" / "torch"))
import extension  # noqa: E402  (it lies in a package that needs the compiled module)

_SOURCES = sorted((pathlib.Path(__file__).parent / "csrc").glob("operators*.cpp"))


def _includes() -> list[str]:
    folders = torch.utils.cpp_extension.include_paths()
    packages = pathlib.Path(torch.__file__).parent.parent / "nvidia"
    folders += [str(folder) for folder in packages.glob("cu*/include")]
    return [f"-isystem{folder}" for folder in folders]


def _is_current(made: pathlib.Path, rule: pathlib.Path) -> bool:
    """Returns whether an object file is newer than the files that it was made of, which the compiler has listed."""
    if not (made.exists() and rule.exists()):
        return False
    names = rule.read_text().replace("\\\n", " ").split(":", 1)[1].split()
    return all(os.path.exists(name) and os.path.getmtime(name) <= made.stat().st_mtime for name in names)


def _compile(source: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    made = folder / f"{source.stem}.o"
    rule = made.with_suffix(".d")
    if not _is_current(made, rule):
        command = [os.environ.get("CXX", "c++"), "-std=c++17", "-O2", "-fPIC", "-Wall", "-Wextra", "-MMD"]
        abi = int(torch.compiled_with_cxx11_abi())
        command += [f"-D_GLIBCXX_USE_CXX11_ABI={abi}", "-DAT_PER_OPERATOR_HEADERS", *_includes()]
        subprocess.run([*command, "-c", str(source), "-o", str(made)], check=True)
    return made


def build(out: pathlib.Path) -> pathlib.Path:
    """Builds the library into a folder, and returns its path."""
    name = extension.name_for(torch.__version__, torch.version.cuda, "operators")
    objects = out / name.replace(".so", ".objects")
    objects.mkdir(parents=True, exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as compilers:
        made = list(compilers.map(lambda source: _compile(source, objects), _SOURCES))
    library = out / name
    libraries = [f"-L{folder}" for folder in torch.utils.cpp_extension.library_paths()]
    libraries += ["-ltorch_cpu", "-ltorch_cuda", "-lc10_cuda", "-lc10", "-ldl"]
    command = [os.environ.get("CXX", "c++"), "-shared", "-s", *map(str, made), *libraries, "-o", str(library)]
    packages = pathlib.Path(torch.__file__).parent.parent / "nvidia"
    command += [f"-Wl,-rpath-link,{folder}" for folder in packages.glob("*/lib")]
    command += ["-Wl,--allow-shlib-undefined"]
    subprocess.run(command, check=True)
    return library


if __name__ == "__main__":
    print(build(pathlib.Path(sys.argv[1])))
