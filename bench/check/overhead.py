#!/usr/bin/env python3
"""Measures what `freehold check` on a GPU costs: programs run plain and checked in turn, several rounds.

    overhead.py FREEHOLD FOLDER [ROUNDS]

compiles `launches.cu` into FOLDER, and prints the times of each round, and the ratio of the medians. A checked run must have no finding.
"""

import pathlib
import shutil
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
NVCC = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"


def run(command):
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if ended.returncode != 0:
        print("status", ended.returncode, "of", command, ended.stderr[-2000:], flush=True)
        return None
    return ended.stdout.split()


def measure(name, freehold, command, columns, rounds):
    check = [freehold, "check", "--device", "cuda", "--quiet", "--"]
    times = {"plain": [], "checked": []}
    for _ in range(rounds):
        for way, prefix in (("plain", []), ("checked", check)):
            printed = run(prefix + command)
            if printed is not None:
                times[way].append([float(word) for word in printed[: len(columns)]])
                print(f"{name} {way}:", *printed, flush=True)
    if not times["plain"] or not times["checked"]:
        return
    for index, column in enumerate(columns):
        plain, checked = (statistics.median(row[index] for row in times[way]) for way in ("plain", "checked"))
        print(f"{name}, {column}: plain {plain:.3f}, checked {checked:.3f}, ratio {checked / plain:.4f}", flush=True)


def main():
    freehold, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 7
    folder.mkdir(parents=True, exist_ok=True)
    launches = folder / "launches"
    subprocess.run([NVCC, "-O2", "-std=c++17", "-arch=native", str(HERE / "launches.cu"), "-o", str(launches)], check=True)
    measure("100,000 launches of 4,096 elements", freehold, [str(launches), "100000", "4096"], ["submit ms", "total ms"], rounds)
    measure("20,000 launches of 4,194,304 elements", freehold, [str(launches), "20000", "4194304"], ["submit ms", "total ms"], rounds)
    measure("training", freehold, [sys.executable, str(HERE / "training.py")], ["seconds"], max(3, rounds // 2))


main()
