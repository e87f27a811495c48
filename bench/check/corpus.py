#!/usr/bin/env python3
"""Runs the programs of the checker's corpus under `freehold check` on a GPU, both versions of each.

    corpus.py FREEHOLD FOLDER [OPTIONS OF FREEHOLD CHECK...]

compiles the programs with nvcc into FOLDER, and prints what was found in each. The programs that `crates/check/corpus/calls.txt` lists must
be found; a corrected version must have no finding. The status is 1 if one of that does not hold.
"""

import concurrent.futures
import json
import pathlib
import shutil
import subprocess
import sys
import time

CORPUS = pathlib.Path(__file__).resolve().parents[2] / "crates/check/corpus"
FLAGS = ["-arch=compute_75", "-std=c++17", "-lineinfo", "-g", "-I", str(CORPUS.parent / "include")]
TIMEOUT_S = 60
NVCC = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"


def build(folder, source, version):
    program = folder / f"{source.stem}-{version}"
    if not program.exists():
        define = ["-DFIXED"] if version == "fixed" else []
        subprocess.run([NVCC, *FLAGS, *define, str(source), "-o", str(program)], check=True)
    return program


def check(freehold, options, program):
    report = program.with_name(program.name + ".json")
    report.unlink(missing_ok=True)
    command = [freehold, "check", *options, "--quiet", "--leaks", "--timeout", str(TIMEOUT_S), "--json", str(report), "--", str(program)]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if not report.exists():
        return None, ended
    return json.loads(report.read_text()), ended


def kind_of(source):
    lines = source.read_text().splitlines()
    return next(line.removeprefix("// kind:").strip() for line in lines if line.startswith("// kind:"))


def main():
    freehold, folder, *options = sys.argv[1:]
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    options = options or ["--device", "cuda"]
    sources = sorted(CORPUS.glob("*.cu"))
    expected = set((CORPUS / "calls.txt").read_text().split())
    versions = [(source, version) for source in sources for version in ("broken", "fixed")]
    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        programs = list(pool.map(lambda each: build(folder, *each), versions))
    print(f"compiled {len(programs)} programs in {time.monotonic() - start:.0f} s", flush=True)
    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        results = list(pool.map(lambda program: check(freehold, options, program), programs))
    print(f"checked them in {time.monotonic() - start:.0f} s")
    found, missed, surplus, false, broken = [], [], [], [], []
    for (source, version), (report, ended) in zip(versions, results):
        name, kind = source.stem, kind_of(source)
        if report is None:
            broken.append(f"{name} {version}: no report, status {ended.returncode}: {ended.stderr.strip()[-300:]}")
            continue
        kinds = sorted({finding["kind"] for finding in report["findings"]})
        messages = [finding["kind"] + ": " + finding["message"] for finding in report["findings"]]
        if version == "fixed":
            if kinds:
                false.append(f"{name}: {messages}")
            elif ended.returncode != 0:
                broken.append(f"{name} fixed: status {ended.returncode}: {ended.stderr.strip()[-300:]}")
        elif kind in kinds:
            found.append(name)
            if kinds != [kind]:
                broken.append(f"{name} broken: other findings too: {messages}")
        elif name in expected:
            missed.append(f"{name} ({kind}): {messages}, status {ended.returncode}: {ended.stderr.strip()[-200:]}")
        elif kinds:
            surplus.append(f"{name} ({kind}): {messages}")
    print(f"found: {len(found)} of {len(sources)}, {len(expected)} expected")
    print("found but not expected:", *sorted(set(found) - expected))
    for title, lines in [("expected, not found", missed), ("other kinds in broken programs", surplus), ("false reports", false), ("trouble", broken)]:
        print(f"{title}: {len(lines)}")
        for line in lines:
            print("   ", line)
    sys.exit(1 if missed or false else 0)


main()
