"""Compiles the kernels of the test data to PTX: the part of `cargo xtask kernels` that talks to NVIDIA's compilers.

    kernels.py TOOLKIT INCLUDES OUT SOURCE...

TOOLKIT is the folder with libnvrtc (`.cu`) or libnvvm (`.ll`), INCLUDES the headers (folders with `:` between), OUT the folder for
the PTX. A source says in a line `compile:` which architecture and options it wants; who picks the toolkit is the caller.
"""

import ctypes
import glob
import os
import sys


def words_after(source, key):
    """The words of the line that starts with a comment sign and `key:`."""
    for line in source.splitlines():
        text = line.lstrip("/;# ")
        if line[:1] in "/;#" and text.startswith(key + ":"):
            return text[len(key) + 1 :].split()
    return []


def library(toolkit, name):
    found = sorted(glob.glob(os.path.join(toolkit, "**", name + ".so*"), recursive=True))
    if not found:
        sys.exit(f"kernels.py: no {name} in {toolkit}")
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


def compile_cu(toolkit, includes, path, source):
    compiler = Compiler(library(toolkit, "libnvrtc"), "nvrtc")
    words = words_after(source, "compile")
    wanted = [f"--gpu-architecture={architecture(words)}", "--std=c++17", "-default-device"]
    wanted += [f"-I{folder}" for folder in includes.split(":")] + options(words)
    program = ctypes.c_void_p()
    name = os.path.basename(path).encode()
    compiler.call("CreateProgram", ctypes.byref(program), source.encode(), name, 0, None, None)
    status = compiler.call("CompileProgram", program, *flags(wanted))
    if status != 0:
        sys.exit(f"{path}:\n{compiler.result(program, 'ProgramLog')}")
    return compiler.result(program, "PTX")


def compile_ll(toolkit, path, source):
    compiler = Compiler(library(toolkit, "libnvvm"), "nvvm")
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


def tidy(ptx):
    """Ends with one newline, and no line ends in a blank."""
    return "\n".join(line.rstrip() for line in ptx.rstrip("\0\n ").splitlines()).strip("\n") + "\n"


def main():
    toolkit, includes, out, *paths = sys.argv[1:]
    toolkit, out, paths = os.path.abspath(toolkit), os.path.abspath(out), [os.path.abspath(path) for path in paths]
    includes = ":".join(os.path.abspath(folder) for folder in includes.split(":"))
    # Lines and debug information name the working directory: nobody's is wanted in the PTX.
    os.chdir("/")
    for path in paths:
        with open(path, encoding="utf-8") as file:
            source = file.read()
        ptx = compile_ll(toolkit, path, source) if path.endswith(".ll") else compile_cu(toolkit, includes, path, source)
        stem = os.path.splitext(os.path.basename(path))[0]
        with open(os.path.join(out, stem + ".ptx"), "w", encoding="utf-8") as file:
            file.write(tidy(ptx))


main()
