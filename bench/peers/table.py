"""Puts what `peers` printed into one JSON file and prints it as a table in Markdown.

    table.py MERGED.json REPORT.json ...
"""

import json
import statistics
import sys

COLUMNS = {
    "freehold": "Freehold",
    "torch": "PyTorch",
    "torch-expandable": "PyTorch expandable",
    "rmm-pool": "RMM pool",
    "rmm-arena": "RMM arena",
    "cuda-malloc-async": "cudaMallocAsync",
    "cuda-malloc": "cudaMalloc",
}
ROWS = {
    "pair 512 B": "allocate + free, 512 B (ns)",
    "pair 64 KiB": "allocate + free, 64 KiB (ns)",
    "pair 2 MiB": "allocate + free, 2 MiB (ns)",
    "pair 20 MiB": "allocate + free, 20 MiB (ns)",
    "threads 1 own": "1 thread, sizes up to 64 KiB (M pairs/s)",
    "threads 16 own": "16 threads, a stream each (M pairs/s)",
    "threads 16 shared": "16 threads, one stream (M pairs/s)",
    "threads 16 handed over": "16 threads, each frees its neighbour's blocks (M pairs/s)",
    "random-1m": "random sizes up to 1 MiB (ns/op, reserved ÷ peak live)",
    "random-64m": "random sizes up to 64 MiB (ns/op, reserved ÷ peak live)",
    "transformer": "transformer steps of random length (ns/op, reserved ÷ peak live)",
    "caches": "caches that grow by half (ns/op, reserved ÷ peak live)",
}


def median_of_runs(figures):
    """One figure of several runs of the same allocator: the median of their medians."""
    failure = next((figure["failure"] for figure in figures if "failure" in figure), None)
    if failure is not None:
        return {"failure": failure}
    merged = {"value": statistics.median(statistics.median(figure["samples"]) for figure in figures)}
    peak_live_bytes = figures[0].get("peak_live_bytes")
    if peak_live_bytes and all("reserved_bytes" in figure for figure in figures):
        merged["reserved_ratio"] = statistics.median(figure["reserved_bytes"] for figure in figures) / peak_live_bytes
    return merged


def number(value):
    """Three digits, or all of a large number."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def cell(figure):
    if figure is None:
        return "–"
    if "failure" in figure:
        return "failed"
    ratio = figure.get("reserved_ratio")
    return number(figure["value"]) + ("" if ratio is None else f", {ratio:.3f}")


def scaling(figures):
    one, many = figures.get("threads 1 own", {}), figures.get("threads 16 own", {})
    if "value" in one and "value" in many:
        return f"{many['value'] / one['value'] / 16:.2f}"
    return "–"


def main():
    merged_path, *report_paths = sys.argv[1:]
    reports = []
    for path in report_paths:
        with open(path, encoding="utf-8") as file:
            reports.append(json.load(file))
    with open(merged_path, "w", encoding="utf-8") as file:
        json.dump(reports, file, indent=1)

    by_allocator = {}
    for name in COLUMNS:
        runs = [report["figures"] for report in reports if report["allocator"] == name]
        if runs:
            by_allocator[name] = {same[0]["workload"]: median_of_runs(same) for same in zip(*runs)}
    measured = dict.fromkeys(workload for figures in by_allocator.values() for workload in figures)
    rows = {name: title for name, title in ROWS.items() if name in measured}
    rows |= {name: f"{name} (ns/op, reserved ÷ peak live)" for name in measured if name not in ROWS}

    versions = {report["allocator"]: report["version"] for report in reports}
    heads = [f"{COLUMNS[name]} {versions[name]}".strip() for name in by_allocator]
    print("| | " + " | ".join(heads) + " |")
    print("|---" * (len(heads) + 1) + "|")
    for workload, title in rows.items():
        print(f"| {title} | " + " | ".join(cell(figures.get(workload)) for figures in by_allocator.values()) + " |")
        if workload == "threads 16 own":
            print("| scaling from 1 to 16 threads | " + " | ".join(map(scaling, by_allocator.values())) + " |")
    runs = max(sum(report["allocator"] == name for report in reports) for name in by_allocator)
    print()
    machine = f"{reports[0]['device']}, {reports[0]['cpu_threads']} CPU threads"
    print(f"{machine}; medians of repeated loops, of {runs} run(s); `bench/peers/run.sh`.")
    for name, figures in by_allocator.items():
        failures = [(workload, figure["failure"]) for workload, figure in figures.items() if "failure" in figure]
        if failures:
            workload, failure = failures[0]
            print(f"{COLUMNS[name]} failed in {len(failures)} of {len(figures)}, first in {workload}: {failure}.")


main()
