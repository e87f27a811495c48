"""CUDA tests on a machine without a GPU: `pytest --freehold` and `pytest --freehold-check`.

With one of these options pytest starts again under `freehold run` or `freehold check`, because the software driver has to be
there before the first library that uses CUDA is loaded. `--freehold-check` fails each test during which the checker found a race
or a memory error, and prints the whole report at the end.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import sys
from typing import Any, Generator, Optional

import pytest

_STARTED = "FREEHOLD_PYTEST"
"""Set in the pytest that was started again."""

_FINDINGS = "FREEHOLD_CHECK"
"""Names the file to which the driver appends what the checker finds, one finding in a line."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("freehold", "CUDA without a GPU (freehold)")
    group.addoption("--freehold", action="store_true", help="run the tests on Freehold's software device")
    group.addoption(
        "--freehold-check",
        action="store_true",
        help="run the tests on the software device, and fail a test in which a race or a memory error is found",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, parser: pytest.Parser, args: list[str]) -> None:
    options = early_config.known_args_namespace
    if not (options.freehold or options.freehold_check) or os.environ.get(_STARTED):
        return
    command = _command(options.freehold_check, args)
    # The process that follows captures its own output.
    capture = early_config.pluginmanager.getplugin("capturemanager")
    if capture is not None:
        capture.stop_global_capturing()
    sys.stdout.flush()
    sys.stderr.flush()
    os.environ[_STARTED] = "1"
    os.execv(command[0], command)


def _command(is_checked: bool, args: list[str]) -> list[str]:
    """Returns the command that starts pytest again."""
    program = _program()
    if program is None:
        raise pytest.UsageError("the command freehold is not installed: reinstall the Python package freehold")
    words = ["check", "--quiet"] if is_checked else ["run", "--device", "soft"]
    return [program, *words, "--", sys.executable, "-m", "pytest", *args]


def _program() -> Optional[str]:
    """Returns the path of the command that was installed with this package."""
    named = os.environ.get("FREEHOLD_COMMAND")
    if named:
        return named
    beside = os.path.join(os.path.dirname(sys.executable), "freehold")
    return beside if os.access(beside, os.X_OK) else shutil.which("freehold")


class _Findings:
    """What the checker has found since the last look."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._read_bytes = 0

    def take(self) -> list[str]:
        _synchronize()
        with open(self._path, "rb") as file:
            file.seek(self._read_bytes)
            text = file.read()
        # A line that another process is writing is left for the next time.
        complete = text[: text.rfind(b"\n") + 1]
        self._read_bytes += len(complete)
        messages = []
        for line in complete.splitlines():
            if line.startswith(b'{"kind"'):
                finding = json.loads(line)
                messages.append(f"{finding['kind']}: {finding.get('message', '')}".rstrip(": "))
        return messages


def _synchronize() -> None:
    """Waits for the work of the current context, if the process has a driver and a context."""
    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=getattr(os, "RTLD_NOLOAD", 4))
    except OSError:
        return
    context = ctypes.c_void_p()
    if driver.cuCtxGetCurrent(ctypes.byref(context)) == 0 and context.value:
        driver.cuCtxSynchronize()


def _raise_error_of_torch() -> None:
    """Waits for PyTorch's operators, and raises what failed among them: it belongs to this test."""
    operators = sys.modules.get("freehold.torch.operators")
    if operators is not None and operators.is_enabled() and sys.modules["torch"].cuda.is_initialized():
        sys.modules["torch"].cuda.synchronize()


_findings: Optional[_Findings] = None


def pytest_configure(config: pytest.Config) -> None:
    global _findings
    is_wanted = config.getoption("--freehold") or config.getoption("--freehold-check")
    if is_wanted and not os.environ.get(_STARTED):
        raise pytest.UsageError("--freehold works on the command line and in addopts; start pytest.main under `freehold run`")
    path = os.environ.get(_FINDINGS)
    if config.getoption("--freehold-check") and path:
        _findings = _Findings(path)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    if _findings is None:
        result = yield
        _raise_error_of_torch()
        return result
    # Found while fixtures were set up, or between tests.
    _findings.take()
    result = yield
    _raise_error_of_torch()
    found = _findings.take()
    if found:
        pytest.fail("the checker found:\n" + "\n".join(found), pytrace=False)
    return result
