#!/usr/bin/env python3
"""Measures what `freehold check` costs: each workload plainly and checked, in turn, and the ratios as Markdown tables.

    bench/check/run.py [--runs N] [--quick]

README.md says what it needs.
"""

import argparse
import glob
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BUILD = os.path.join(ROOT, "target", "check-cost")

# What must hold: the checked run's CPU time and memory, divided by those of the plain one. The time on the clock depends on what else
# the machine does.
TIME_MAX, MEMORY_MAX = 3.0, 2.5

# A run that takes longer has failed.
TIMEOUT_S = 600

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


class Failed(Exception):
    """A run that did not end as it should."""


def measure(command):
    """Runs a command. Returns its seconds, CPU seconds, and the KiB of memory that the program says it had."""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        start = time.monotonic()
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True)
        timer = threading.Timer(TIMEOUT_S, os.killpg, (child.pid, signal.SIGKILL))
        timer.start()
        _, status, usage = os.wait4(child.pid, 0)
        timer.cancel()
        seconds = time.monotonic() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        errors.seek(0)
        words = output.read().split()
        if child.returncode != 0 or len(words) != 2:
            raise Failed(f"{' '.join(command)} ended with status {child.returncode}: {errors.read().strip()[-1000:]}")
        return seconds, usage.ru_utime + usage.ru_stime, int(words[-1])


def compare(freehold, program, workload, runs):
    """Returns the medians of a plain run and of a checked one."""
    words = [program, *map(str, workload)]
    plain, checked = [], []
    for _ in range(runs):
        plain.append(measure([freehold, "run", "--device", "soft", "--", *words]))
        checked.append(measure([freehold, "check", "--quiet", "--", *words]))
    return [[statistics.median(column) for column in zip(*measured)] for measured in (plain, checked)]


def busy_seconds():
    """Returns how long all CPUs together have been busy."""
    with open("/proc/stat") as stat:
        user, nice, system, idle, iowait, irq, softirq, *_ = map(int, stat.readline().split()[1:])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


class Machine:
    """Says how many CPUs there are, and how much of them others used meanwhile."""

    def __init__(self):
        self.start, self.busy, self.own = time.monotonic(), busy_seconds(), sum(os.times()[:4])

    def __str__(self):
        seconds = (time.monotonic() - self.start) * os.cpu_count()
        others = busy_seconds() - self.busy - (sum(os.times()[:4]) - self.own)
        model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "")
        return f"{os.cpu_count()} CPUs ({model}); others used {max(others, 0) / seconds:.0%} of them"


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
    machine = Machine()
    missed, failed = [], []

    def table(first, labelled):
        header(first)
        for label, workload in labelled:
            try:
                _, cpu_ratio, memory_ratio = row(label, *compare(freehold, program, workload, runs))
            except Failed as error:
                failed.append(f"{first} {label}")
                print(f"run.py: {error}", file=sys.stderr, flush=True)
                continue
            if cpu_ratio > TIME_MAX:
                missed.append(f"{first} {label}: CPU time {cpu_ratio:.2f}")
            if memory_ratio > MEMORY_MAX:
                missed.append(f"{first} {label}: memory {memory_ratio:.2f}")

    table("program", [(workload[0], workload) for workload in PROGRAMS])
    if not arguments.quick:
        for what, workloads in GROWTH:
            labels = {"launches": lambda work: work[3], "streams": lambda work: work[2], "bytes": lambda work: 8 * work[1]}
            table(what, [(f"{labels[what](workload):,}", workload) for workload in workloads])
    print(f"\nmedians of {runs} runs; {machine}")
    print(f"targets: {TIME_MAX} times the CPU time, {MEMORY_MAX} times the memory; missed: {'; '.join(missed) or 'none'}")
    if failed:
        fail(f"failed: {'; '.join(failed)}")


main()
