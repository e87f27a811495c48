#!/usr/bin/env python3
"""Measures what `freehold check` costs: each workload plainly and checked, in turn, and the ratios as Markdown tables.

    bench/check/run.py [--runs N] [--quick]

README.md says what it needs.
"""

import argparse
import glob
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BUILD = os.path.join(ROOT, "target", "check-cost")

# What must hold: the checked run's time and memory, divided by those of the plain one.
TIME_MAX, MEMORY_MAX = 3.0, 2.5

# Workload, size, streams, launches in each stream.
PROGRAMS = [
    ("saxpy", 8_000_000, 1, 8),
    ("reduction", 8_000_000, 1, 4),
    ("matrix", 512, 1, 4),
    ("launches", 1024, 1, 10_000),
]
GROWTH = [
    ("launches", [("launches", 1024, 1, count) for count in (2_500, 5_000, 10_000, 20_000, 40_000)]),
    ("streams", [("launches", 1024, count, 10_000 // count) for count in (1, 2, 4, 8, 16)]),
    ("bytes", [("saxpy", count, 1, 8) for count in (500_000, 1_000_000, 2_000_000, 4_000_000, 8_000_000)]),
]


def fail(message):
    sys.exit(f"run.py: {message}")


def nvcc():
    found = [os.environ.get("NVCC")] + sorted(glob.glob(f"{ROOT}/target/kernels/nvcc-13/nvidia/*/bin/nvcc"))
    return next((path for path in found if path), "nvcc")


def build():
    """Compiles the program and returns its path."""
    os.makedirs(BUILD, exist_ok=True)
    source, program, compiler = os.path.join(HERE, "cost.cu"), os.path.join(BUILD, "cost"), nvcc()
    library = os.path.join(os.path.dirname(os.path.dirname(compiler)), "lib")
    command = [compiler, "-O2", "-lineinfo", "-arch=compute_75", "-L", library, source, "-o", program]
    try:
        subprocess.run(command, check=True)
    except FileNotFoundError:
        fail(f"{compiler} does not exist: install a CUDA toolkit or name its compiler in NVCC")
    except subprocess.CalledProcessError as error:
        fail(f"{compiler} failed with status {error.returncode}")
    return program


def measure(command):
    """Runs a command. Returns its seconds, CPU seconds, and the KiB of memory that the program says it had."""
    start = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    output = child.stdout.read()
    errors = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        fail(f"{' '.join(command)} ended with status {child.returncode}: {errors}")
    seconds = time.monotonic() - start
    return seconds, usage.ru_utime + usage.ru_stime, int(output.split()[-1])


def compare(freehold, program, workload, runs):
    """Returns the medians of a plain run and of a checked one."""
    words = [program, *map(str, workload)]
    plain, checked = [], []
    for _ in range(runs):
        plain.append(measure([freehold, "run", "--device", "soft", "--", *words]))
        checked.append(measure([freehold, "check", "--quiet", "--", *words]))
    return [[statistics.median(column) for column in zip(*measured)] for measured in (plain, checked)]


def row(label, plain, checked):
    ratios = [after / before for before, after in zip(plain, checked)]
    numbers = [f"{plain[0]:.2f} s", f"{ratios[0]:.2f}", f"{plain[1]:.2f} s", f"{ratios[1]:.2f}"]
    numbers += [f"{plain[2] / 1024:.1f} MiB", f"{ratios[2]:.2f}"]
    print(f"| {label} | {' | '.join(numbers)} |", flush=True)
    return ratios


def header(first):
    columns = [first, "plain time", "ratio", "plain CPU time", "ratio", "plain memory", "ratio"]
    print(f"\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}", flush=True)


def main():
    parser = argparse.ArgumentParser(description="Measures what `freehold check` costs.")
    parser.add_argument("--runs", type=int, default=3, help="runs of each, of which the median counts")
    parser.add_argument("--quick", action="store_true", help="the four programs only, once")
    arguments = parser.parse_args()
    runs = 1 if arguments.quick else arguments.runs
    freehold = os.environ.get("FREEHOLD", os.path.join(ROOT, "target", "release", "freehold"))
    if not os.path.exists(freehold):
        fail(f"{freehold} does not exist: run `cargo build --release`, or name a binary in FREEHOLD")
    program = build()
    missed = []
    header("program")
    for workload in PROGRAMS:
        time_ratio, _, memory_ratio = row(workload[0], *compare(freehold, program, workload, runs))
        if time_ratio > TIME_MAX or memory_ratio > MEMORY_MAX:
            missed.append(workload[0])
    print(f"\ntargets: {TIME_MAX} times the time, {MEMORY_MAX} times the memory; missed: {', '.join(missed) or 'none'}")
    for what, workloads in [] if arguments.quick else GROWTH:
        header(what)
        for workload in workloads:
            _, size, streams, launches = workload
            label = {"launches": launches, "streams": streams, "bytes": 8 * size}[what]
            row(f"{label:,}", *compare(freehold, program, workload, runs))


main()
