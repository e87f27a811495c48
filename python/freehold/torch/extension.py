"""The compiled parts of `freehold.torch`, one library for each minor version of PyTorch."""

from __future__ import annotations

import glob
import os
from typing import Optional

import torch

_FOLDER = os.path.dirname(os.path.abspath(__file__))


def path(name: str) -> Optional[str]:
    """Returns the path of an extension for the PyTorch of this process, or None if the package has none."""
    found = os.path.join(_FOLDER, f"{name}-{_minor(torch.__version__)}.so")
    return found if os.path.exists(found) else None


def missing(name: str, consequence: str) -> str:
    """Returns the sentence for a PyTorch that an extension was not built for."""
    names = sorted(os.path.basename(found) for found in glob.glob(os.path.join(_FOLDER, f"{name}-*.so")))
    versions = ", ".join(found[len(name) + 1 : -len(".so")] for found in names) or "no PyTorch"
    return f"freehold has no {name} for PyTorch {torch.__version__}: {consequence}; this package was built for {versions}"


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
