"""Runs PyTorch's own tests, each in a process that survives the others, and compares allocators.

    python bench/torch/torch_tests.py PYTORCH/test/test_cuda.py                    # on a GPU: native, then Freehold
    python bench/torch/torch_tests.py PYTORCH/test/test_cuda.py --soft freehold    # without a GPU, by that command

The file is of PyTorch's repository, of the installed version or one near it: what PyTorch's own allocator does not pass says
nothing about Freehold's. A test that ends its process is a crash, one that outlasts --timeout is a hang; both are counted, and
the tests after it run in a new process. What did not pass after other tests in the same process runs again in a process of
its own. Prints the counts and every difference, and writes each result, with its reason, as JSON.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import pathlib
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
OUTCOMES = ["passed", "failed", "crashed", "hung", "skipped"]
BAD = ["failed", "crashed", "hung"]


class Process:
    """A process of `torch_tests_worker.py`, which runs the tests that are named to it one by one."""

    def __init__(self, prefix: list[str], file: pathlib.Path, allocator: str) -> None:
        command = [*prefix, sys.executable, str(HERE / "torch_tests_worker.py"), str(file), allocator]
        self.log = tempfile.TemporaryFile("w+", errors="replace")
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True, start_new_session=True
        )
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.process.stdout, selectors.EVENT_READ)

    def ask(self, line: str, timeout: float) -> dict:
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return self.crash()
        if not self.selector.select(timeout):
            return {"outcome": "hung", "reason": f"no result in {timeout:.0f} s"}
        told = self.process.stdout.readline()
        return json.loads(told) if told else self.crash()

    def crash(self) -> dict:
        status = self.process.wait()
        self.log.seek(0)
        return {"outcome": "crashed", "reason": f"status {status}", "trace": self.log.read()[-3000:]}

    def end(self) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
        self.log.close()


class Run:
    """The tests of a file with one allocator."""

    def __init__(self, arguments: argparse.Namespace, allocator: str) -> None:
        self.arguments, self.allocator, self.results = arguments, allocator, {}
        self.prefix = [arguments.soft, "run", "--device", "soft", "--"] if arguments.soft else []

    def process(self) -> Process:
        return Process(self.prefix, self.arguments.file, self.allocator)

    def names(self) -> list[str]:
        process = self.process()
        told = process.ask("list", 600)
        process.end()
        if "names" not in told:
            raise SystemExit(f"{self.arguments.file} cannot be loaded with allocator {self.allocator}: {told['reason']}")
        return [name for name in told["names"] if any(one in name for one in self.arguments.keywords)]

    def serve(self, queue: collections.deque[str], is_alone: bool) -> None:
        process = None
        while queue:
            try:
                name = queue.popleft()
            except IndexError:
                break
            process = process or self.process()
            start = time.monotonic()
            told = process.ask(name, self.arguments.timeout)
            self.results[name] = told | {"seconds": round(time.monotonic() - start, 1)}
            if is_alone or not told.pop("is_usable", False):
                process.end()
                process = None
        if process:
            process.end()

    def all(self) -> dict:
        names = self.names()
        self.serve_all(names, self.arguments.jobs, is_alone=False)
        bad = [name for name in names if self.results[name]["outcome"] in BAD]
        self.serve_all(bad, self.arguments.jobs, is_alone=True)
        return self.results

    def serve_all(self, names: list[str], jobs: int, is_alone: bool) -> None:
        queue = collections.deque(names)
        threads = [threading.Thread(target=self.serve, args=(queue, is_alone)) for _ in range(jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def counts(results: dict) -> dict:
    counted = collections.Counter(one["outcome"] for one in results.values())
    return {outcome: counted[outcome] for outcome in OUTCOMES}


def differences(results: dict, base: dict) -> list[str]:
    """Returns the tests that pass with the first allocator, and not with the other."""
    return [name for name, one in results.items() if one["outcome"] in BAD and base[name]["outcome"] == "passed"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--soft", metavar="FREEHOLD", help="run on the software device, by this freehold command")
    parser.add_argument("--allocators", nargs="*", choices=["native", "freehold"])
    parser.add_argument("-k", dest="keywords", action="append", help="only tests with this in their name")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=300)
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("torch-tests.json"))
    arguments = parser.parse_args()
    arguments.file = arguments.file.resolve()
    arguments.keywords = arguments.keywords or [""]
    allocators = arguments.allocators or (["native"] if arguments.soft else ["native", "freehold"])
    told: dict = {}
    for allocator in allocators:
        start = time.monotonic()
        told[allocator] = Run(arguments, allocator).all()
        arguments.output.write_text(json.dumps(told, indent=1) + "\n")
        counted = ", ".join(f"{number} {outcome}" for outcome, number in counts(told[allocator]).items())
        print(f"{allocator}: {counted}, in {time.monotonic() - start:.0f} s", flush=True)
    base = told[allocators[0]]
    for allocator in allocators[1:]:
        found = differences(told[allocator], base)
        print(f"{len(found)} tests pass with {allocators[0]} and not with {allocator}")
        for name in found:
            print(f"  {name}: {told[allocator][name]['outcome']}: {told[allocator][name]['reason']}")


if __name__ == "__main__":
    main()
