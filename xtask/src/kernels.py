"""Compiles the kernels of the test data to PTX: the part of `cargo xtask kernels` that talks to the compilers.

    kernels.py PACKAGES OUT SOURCE...

PACKAGES is the folder into which pip installed NVRTC with its headers (for `.cu`), libnvvm (`.ll`) or Numba (`.py`), OUT the
folder for the PTX. A line `compile:` in a source states the architecture and the options; the caller chooses the packages.
"""

import ctypes
import glob
import os
import sys


def words_after(source, key):
    """Returns the words of the comment line that starts with `key:`."""
    for line in source.splitlines():
        text = line.lstrip("/;# ")
        if line[:1] in "/;#" and text.startswith(key + ":"):
            return text[len(key) + 1 :].split()
    return []


def library(packages, name):
    found = sorted(glob.glob(os.path.join(packages, "**", name + ".so*"), recursive=True))
    if not found:
        sys.exit(f"kernels.py: no {name} in {packages}")
    return ctypes.CDLL(found[0])


def architecture(words):
    return next((word for word in words if word.startswith("compute_")), "compute_90")


def options(words):
    return [word for word in words if word.startswith("-")]


class Compiler:
    """One of the two libraries; they have the same calls under two prefixes."""

    def __init__(self, lib, prefix):
        self.lib, self.prefix = lib, prefix

    def call(self, name, *arguments):
        return getattr(self.lib, self.prefix + name)(*arguments)

    def result(self, program, what):
        size = ctypes.c_size_t()
        self.call(f"Get{what}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self.call(f"Get{what}", program, buffer)
        return buffer.value.decode()


def flags(list_of_options):
    return len(list_of_options), (ctypes.c_char_p * len(list_of_options))(*[o.encode() for o in list_of_options])


def headers(packages):
    """Every folder that includes are relative to."""
    known = ("cuda_fp16.h", "crt/host_defines.h", "cuda/std/version")
    found = {file[: -len(name) - 1] for name in known for file in glob.glob(f"{packages}/**/{name}", recursive=True)}
    return sorted(found)


def compile_cu(packages, path, source):
    # Not every NVRTC finds its second library beside itself.
    library(packages, "libnvrtc-builtins")
    compiler = Compiler(library(packages, "libnvrtc"), "nvrtc")
    words = words_after(source, "compile")
    wanted = [f"--gpu-architecture={architecture(words)}", "--std=c++17", "-default-device"]
    wanted += [f"-I{folder}" for folder in headers(packages)] + options(words)
    program = ctypes.c_void_p()
    name = os.path.basename(path).encode()
    compiler.call("CreateProgram", ctypes.byref(program), source.encode(), name, 0, None, None)
    status = compiler.call("CompileProgram", program, *flags(wanted))
    if status != 0:
        sys.exit(f"{path}:\n{compiler.result(program, 'ProgramLog')}")
    return compiler.result(program, "PTX")


def compile_ll(packages, path, source):
    compiler = Compiler(library(packages, "libnvvm"), "nvvm")
    words = words_after(source, "compile")
    program = ctypes.c_void_p()
    name = os.path.basename(path).encode()
    compiler.call("CreateProgram", ctypes.byref(program))
    text = source.encode()
    compiler.call("AddModuleToProgram", program, text, ctypes.c_size_t(len(text)), name)
    status = compiler.call("CompileProgram", program, *flags([f"-arch={architecture(words)}"] + options(words)))
    if status != 0:
        sys.exit(f"{path}:\n{compiler.result(program, 'ProgramLog')}")
    return compiler.result(program, "CompiledResult")


def compile_py(packages, path, source):
    """A source for Numba has a function `kernel` and the types of its arguments in `TYPES`, both in Numba's words."""
    version = architecture(words_after(source, "compile"))[len("compute_") :]
    nvcc = os.path.join(packages, "nvidia", "cuda_nvcc")
    # Numba looks for a name with a version, and asks a CUDA runtime for architectures unless it is told one.
    versioned = os.path.join(nvcc, "nvvm", "lib64", "libnvvm.so.4")
    if not os.path.exists(versioned):
        os.symlink("libnvvm.so", versioned)
    os.environ["CUDA_HOME"] = nvcc
    os.environ["NUMBA_FORCE_CUDA_CC"] = f"{version[:-1]}.{version[-1]}"
    sys.path.insert(0, packages)
    from numba import cuda

    names = {"__name__": os.path.splitext(os.path.basename(path))[0]}
    exec(compile(source, "/" + os.path.basename(path), "exec"), names)
    cc = (int(version[:-1]), int(version[-1]))
    ptx, _ = cuda.compile(names["kernel"], names["TYPES"], device=False, cc=cc, output="ptx", abi="numba")
    return ptx


COMPILERS = {".cu": compile_cu, ".ll": compile_ll, ".py": compile_py}


def tidy(ptx):
    """Ends with one newline, and no line ends in a blank."""
    return "\n".join(line.rstrip() for line in ptx.rstrip("\0\n ").splitlines()).strip("\n") + "\n"


def main():
    packages, out, *paths = (os.path.abspath(path) for path in sys.argv[1:])
    # Lines and debug information name the working directory: nobody's is wanted in the PTX.
    os.chdir("/")
    for path in paths:
        with open(path, encoding="utf-8") as file:
            source = file.read()
        stem, extension = os.path.splitext(os.path.basename(path))
        ptx = COMPILERS[extension](packages, path, source)
        with open(os.path.join(out, stem + ".ptx"), "w", encoding="utf-8") as file:
            file.write(tidy(ptx))


main()
