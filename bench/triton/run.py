"""Runs Triton's tutorials without their benchmarks: run.py FOLDER [WORD ...]

FOLDER is `python/tutorials` of Triton's repository, at the version that is installed. Without a GPU, start it with
`freehold run -- python3 run.py FOLDER`. A tutorial checks its results itself, against PyTorch. WORDs select tutorials.
"""

import pathlib
import runpy
import sys
import time
import traceback

import torch
import triton
import triton.testing

# Of each kernel that is tuned, how many variants are compared: a benchmark takes long on a CPU.
CONFIGS = 1


class NoBenchmark:
    def __init__(self, function):
        self.function = function

    def run(self, *_, **__):
        pass


def perf_report(_):
    return NoBenchmark


def limited(autotune):
    def limited_autotune(configs, *arguments, **named):
        return autotune(configs[:CONFIGS], *arguments, **named)

    return limited_autotune


def attention(path):
    """The tutorial's own test, with sizes that a CPU computes in seconds."""
    test = runpy.run_path(str(path), run_name="tutorial")["test_op"]
    for heads in (64, 128):
        for context in (128, 256):
            test(1, 2, context, heads, True, False, "bwd", "triton-fp16")
            test(1, 2, context, heads, True, False, "fwd", "triton-fp8")


def main():
    folder, words = pathlib.Path(sys.argv[1]), sys.argv[2:]
    triton.testing.perf_report = perf_report
    triton.autotune = limited(triton.autotune)
    print(f"PyTorch {torch.__version__}, Triton {triton.__version__}, {torch.cuda.get_device_name()}")
    failed = 0
    for path in sorted(folder.glob("0[1-6]-*.py")):
        if words and not any(word in path.name for word in words):
            continue
        start = time.monotonic()
        try:
            if "attention" in path.name:
                attention(path)
            else:
                runpy.run_path(str(path), run_name="__main__")
            outcome = "passed"
        except Exception:
            traceback.print_exc()
            outcome, failed = "FAILED", failed + 1
        print(f"== {path.name}: {outcome}, {time.monotonic() - start:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
