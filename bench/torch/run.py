"""Compares PyTorch's allocators on a GPU: its own, its own with expandable segments, and Freehold.

    python bench/torch/run.py [--rounds 7] [--only gpt] [--output results.json] [--allocators native freehold]

Each workload runs in one process for each allocator. The processes take turns, round by round, and times are compared
within a round: so what else changes on the machine changes all of them. Prints a table, and writes JSON. Ends with status 1
if results differ or a replayed graph changed a tensor.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ALLOCATORS = ["native", "expandable", "freehold"]
WORKLOADS = ["cnn", "gpt", "generation", "blocks"]


class Worker:
    """A process with an allocator and a workload."""

    def __init__(self, allocator: str, name: str) -> None:
        command = [sys.executable, str(HERE / "worker.py"), allocator, name]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def round(self) -> dict:
        self.process.stdin.write("round\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.process.args} ended with status {self.process.wait()}")
        return json.loads(line)

    def end(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def measure(name: str, allocators: list[str], rounds: int) -> dict:
    """Runs the rounds of a workload, the first of which is not timed."""
    workers = {allocator: Worker(allocator, name) for allocator in allocators}
    told: dict = {allocator: [] for allocator in allocators}
    for number in range(rounds + 1):
        # Each is first, second and last equally often.
        turn = allocators[number % len(allocators) :] + allocators[: number % len(allocators)]
        for allocator in turn:
            told[allocator].append(workers[allocator].round())
    for worker in workers.values():
        worker.end()
    return {allocator: summary(told[allocator], told[allocators[0]]) for allocator in allocators}


def summary(rounds: list[dict], base: list[dict]) -> dict:
    timed, base_timed = rounds[1:], base[1:]
    ratios = [one["seconds_per_step"] / other["seconds_per_step"] for one, other in zip(timed, base_timed)]
    return {
        "milliseconds_per_step": 1000 * statistics.median(one["seconds_per_step"] for one in timed),
        "ratio": statistics.median(ratios),
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
        "reserved_peak_bytes": max(one["reserved_peak"] for one in rounds),
        "allocated_peak_bytes": max(one["allocated_peak"] for one in rounds),
        "retries": rounds[-1]["retries"],
        "same_results": [one["values"] for one in rounds] == [one["values"] for one in base],
        "last_value": rounds[-1]["values"][-1],
    }


def print_table(results: dict) -> None:
    print(f"{'workload':11} {'allocator':11} {'ms/step':>9} {'ratio (min-max)':>21} {'reserved':>10} {'allocated':>10}  results")
    for name, rows in results.items():
        for allocator, row in rows.items():
            ratio = f"{row['ratio']:.3f} ({row['ratio_min']:.3f}-{row['ratio_max']:.3f})"
            reserved, allocated = (f"{row[key] / 2**30:.2f} GiB" for key in ("reserved_peak_bytes", "allocated_peak_bytes"))
            same = "same" if row["same_results"] else "DIFFERENT"
            print(
                f"{name:11} {allocator:11} {row['milliseconds_per_step']:9.2f} {ratio:>21} {reserved:>10} {allocated:>10}  {same}"
            )


def graphs(allocators: list[str]) -> dict:
    found = {}
    for allocator in allocators:
        command = [sys.executable, str(HERE / "graphs.py"), allocator]
        ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        lines = ended.stdout.strip().splitlines()
        found[allocator] = json.loads(lines[-1]) if ended.returncode == 0 else {"failed": ended.returncode}
        print(f"graphs, {allocator}: {found[allocator]}")
    return found


def is_right(row: dict) -> bool:
    return row.get("changed") == [] and row["loss_is_the_same"] and row["gradients_are_the_same"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", nargs="*", choices=[*WORKLOADS, "graphs"], default=[*WORKLOADS, "graphs"])
    parser.add_argument("--allocators", nargs="*", choices=ALLOCATORS, default=ALLOCATORS)
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("torch-allocators.json"))
    arguments = parser.parse_args()
    results = {
        name: measure(name, arguments.allocators, arguments.rounds) for name in WORKLOADS if name in arguments.only
    }
    print_table(results)
    replayed = graphs(arguments.allocators) if "graphs" in arguments.only else {}
    arguments.output.write_text(json.dumps({"workloads": results, "graphs": replayed}, indent=1) + "\n")
    print(f"written to {arguments.output}")
    rows = [row for one in results.values() for row in one.values()]
    if not all(row["same_results"] for row in rows) or not all(is_right(row) for row in replayed.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
