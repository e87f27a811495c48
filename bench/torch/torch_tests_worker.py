"""Runs tests of a file of PyTorch: reads "list", or the name of a test, from its input, and answers with a line of JSON."""

from __future__ import annotations

import ast
import gc
import importlib
import json
import os
import pathlib
import sys
import types
import unittest


def flat(suite: unittest.TestSuite) -> list[unittest.TestCase]:
    return [case for one in suite for case in (flat(one) if isinstance(one, unittest.TestSuite) else [one])]


def skipped(*_arguments: object, **_named: object):
    """Stands for a decorator that the installed PyTorch lacks."""
    return unittest.skip("the installed PyTorch lacks a helper of this test")


def add_missing_names(file: pathlib.Path) -> None:
    """A file of another version may import helpers that the installed PyTorch lacks. Tests that use them fail, or are skipped."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch.testing."):
            module = importlib.import_module(node.module)
            for name in node.names:
                if not hasattr(module, name.name):
                    setattr(module, name.name, False if name.name.isupper() else skipped)


def load(file: pathlib.Path) -> dict[str, unittest.TestCase]:
    sys.path.insert(0, str(file.parent))
    sys.argv = [str(file)]
    add_missing_names(file)
    # Not as the main module, which would run all tests at once.
    module = types.ModuleType(file.stem)
    module.__file__ = str(file)
    sys.modules[file.stem] = module
    exec(compile(file.read_text(), str(file), "exec"), module.__dict__)
    cases = flat(unittest.defaultTestLoader.loadTestsFromModule(module))
    return {case.id().removeprefix(file.stem + "."): case for case in cases}


def run(case: unittest.TestCase) -> dict:
    result = unittest.TestResult()
    unittest.TestSuite([case]).run(result)
    bad = result.failures + result.errors
    if bad:
        lines = [line for line in bad[0][1].splitlines() if line and not line.startswith(" ")]
        wanted = [line for line in lines if "Error" in line or "Exception" in line] or lines
        return {"outcome": "failed", "reason": wanted[0][:300], "trace": bad[0][1][-3000:]}
    if result.unexpectedSuccesses:
        return {"outcome": "failed", "reason": "succeeded, and should fail"}
    if result.skipped:
        return {"outcome": "skipped", "reason": result.skipped[0][1][:200]}
    return {"outcome": "passed", "reason": ""}


def is_usable() -> bool:
    """Whether a failed test left a context in which others can run."""
    import torch

    gc.collect()
    try:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        return not torch.cuda.is_current_stream_capturing()
    except RuntimeError:
        return False


def main(file: str, allocator: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if allocator == "freehold":
        import freehold.torch

        freehold.torch.enable()
    try:
        cases = load(pathlib.Path(file))
    except Exception as error:
        print(json.dumps({"outcome": "crashed", "reason": repr(error)}), file=answers, flush=True)
        raise
    for line in sys.stdin:
        name = line.strip()
        told = {"names": list(cases)} if name == "list" else run(cases[name])
        told["is_usable"] = told.get("outcome") != "failed" or is_usable()
        print(json.dumps(told), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
