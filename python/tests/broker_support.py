"""A broker for the tests, with the command that the wheel installs."""

import ctypes
import os
import signal
import subprocess
import tempfile
import time

COMMAND = os.environ.get("FREEHOLD_COMMAND", "freehold")
# The device of these tests: `freehold run` names it.
DEVICE = os.environ.get("FREEHOLD_DEVICE", "cuda")
# Only a broken broker keeps a test waiting for so long.
PATIENCE = 60


# prctl(2): the signal that a process gets when its parent dies.
PR_SET_PDEATHSIG = 1


def end_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class Server:
    """A broker in a folder of its own."""

    def __init__(self, memory="64MiB"):
        self.folder = tempfile.TemporaryDirectory(prefix="freehold-python-")
        self.socket = os.path.join(self.folder.name, "broker")
        command = [COMMAND, "serve", "--device", DEVICE, "--socket", self.socket, "--memory", memory]
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        self.process = subprocess.Popen(command, preexec_fn=end_with_parent, **output)
        # It says that it is ready.
        said = ""
        while "broker with" not in said:
            line = self.process.stdout.readline()
            assert line, f"the broker did not start: {said}"
            said += line

    def close(self):
        self.process.terminate()
        self.process.wait(PATIENCE)
        self.process.stdout.close()
        self.folder.cleanup()


def eventually(holds, what):
    """Waits for something that another process does."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not within {PATIENCE} s"
        os.sched_yield()
