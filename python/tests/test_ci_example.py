"""The example for GitHub Actions: its steps run here, in a fresh virtual environment. Run under `freehold run`."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest
import yaml

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "ci"


@pytest.fixture(scope="module")
def job():
    workflow = yaml.safe_load((EXAMPLE / "github-actions.yml").read_text())
    # YAML 1.1 reads the key `on` as true.
    assert set(workflow) == {"name", True, "jobs"}
    (job,) = workflow["jobs"].values()
    return job


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """The project of the example, with the wheel, and the environment of its runner."""
    folder = tmp_path_factory.mktemp("project")
    shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True)
    (folder / "wheels").mkdir()
    shutil.copy(os.environ["FREEHOLD_WHEEL"], folder / "wheels")
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("LD_", "FREEHOLD_", "PYTHON", "CUDA_"))}
    return folder, {**kept, "PATH": f"{folder / 'venv' / 'bin'}:{os.environ['PATH']}"}


def step(project, command):
    """Runs a step as the runner does."""
    folder, environment = project
    return subprocess.run(["bash", "-eo", "pipefail", "-c", command], cwd=folder, env=environment, text=True, capture_output=True)


def test_each_step_succeeds(job, project):
    assert job["runs-on"] == "ubuntu-latest"
    assert [one["uses"].split("@")[0] for one in job["steps"] if "uses" in one] == ["actions/checkout", "actions/setup-python"]
    commands = [one["run"] for one in job["steps"] if "run" in one]
    assert len(commands) == 3
    for command in commands:
        outcome = step(project, command)
        assert outcome.returncode == 0, f"{command}:\n{outcome.stdout}{outcome.stderr}"
    assert "1 passed" in outcome.stdout
    # The check sees the kernel: without one of its barriers, it fails.
    program = project[0] / "tests" / "test_total.py"
    program.write_text(program.read_text().replace("        cuda.syncthreads()\n        step //= 2", "        step //= 2"))
    outcome = step(project, commands[-1])
    assert outcome.returncode == 1 and "race" in outcome.stdout, outcome.stdout + outcome.stderr
