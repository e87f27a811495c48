"""The options --freehold and --freehold-check, in a pytest of their own that starts without the software device."""

import os
import re
import subprocess
import sys

import pytest

TESTS = '''
import ctypes, pytest

class Driver:
    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")
        assert self.library.cuInit(0) == 0
        context = ctypes.c_void_p()
        assert self.library.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
        assert self.library.cuCtxSetCurrent(context) == 0

    def streams(self):
        streams = [ctypes.c_void_p(), ctypes.c_void_p()]
        for stream in streams:
            assert self.library.cuStreamCreate(ctypes.byref(stream), 1) == 0
        return streams

    def memory(self):
        address = ctypes.c_uint64()
        assert self.library.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(4096)) == 0
        return address

    def fill(self, memory, stream):
        assert self.library.cuMemsetD8Async(memory, 1, ctypes.c_size_t(4096), stream) == 0

def test_in_one_stream():
    driver = Driver()
    memory, (stream, _) = driver.memory(), driver.streams()
    driver.fill(memory, stream)
    driver.fill(memory, stream)

def test_in_two_streams():
    driver = Driver()
    memory, (one, other) = driver.memory(), driver.streams()
    driver.fill(memory, one)
    driver.fill(memory, other)

def test_after_it():
    Driver().library.cuCtxSynchronize()
'''


@pytest.fixture
def run(tmp_path):
    (tmp_path / "test_program.py").write_text(TESTS)
    kept = ("PATH", "PYTHONPATH", "HOME", "FREEHOLD_COMMAND", "PYTHONDONTWRITEBYTECODE", "TMPDIR", "XDG_CACHE_HOME")
    environment = {name: os.environ[name] for name in kept if name in os.environ}

    def run_pytest(*arguments, ini=""):
        (tmp_path / "pytest.ini").write_text(f"[pytest]\n{ini}\n")
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    return run_pytest


def test_with_the_option_the_tests_have_a_device(run):
    outcome = run("--freehold")
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert "3 passed" in outcome.stdout


def test_the_option_may_stand_in_the_settings(run):
    outcome = run("-k", "one_stream", ini="addopts = --freehold")
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert "1 passed" in outcome.stdout


def test_with_the_checker_the_test_with_a_race_fails_and_no_other(run):
    outcome = run("--freehold-check")
    assert outcome.returncode == 1, outcome.stdout + outcome.stderr
    assert "1 failed, 2 passed" in outcome.stdout
    assert "FAILED test_program.py::test_in_two_streams" in outcome.stdout
    race = r"stream-race: cuMemsetD8Async in stream \d writes what cuMemsetD8Async in stream \d writes"
    assert re.search(race, outcome.stdout), outcome.stdout
    assert "1 finding" in outcome.stderr


def test_output_arguments_and_status_are_those_of_pytest(run):
    outcome = run("--freehold", "-k", "nothing_of_this_name")
    assert outcome.returncode == 5, outcome.stdout + outcome.stderr
    assert "3 deselected" in outcome.stdout
