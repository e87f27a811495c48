"""Finds what was compiled for the running version of PyTorch. Needs neither PyTorch nor the rest of this package."""

from __future__ import annotations

import pathlib
from typing import Optional

_FOLDER = pathlib.Path(__file__).resolve().parent


def name_for(version: str, cuda: Optional[str], part: str = "allocator") -> str:
    """Returns the name of the file for a version of PyTorch, such as 2.11.0+cu130, and of CUDA, such as 13.0."""
    major, minor = version.split("+")[0].split(".")[:2]
    return f"_{part}_{major}_{minor}_cu{(cuda or 'none').split('.')[0]}.so"


def find(version: str, cuda: Optional[str], part: str = "allocator") -> Optional[pathlib.Path]:
    """Returns the file for a version of PyTorch and of CUDA, if this package has one."""
    file = _FOLDER / name_for(version, cuda, part)
    return file if file.exists() else None


def available(part: str = "allocator") -> list[str]:
    """Returns the versions of PyTorch and of CUDA for which this package has a file."""
    names = [file.stem.split("_")[2:] for file in sorted(_FOLDER.glob(f"_{part}_*.so"))]
    return [f"{name[0]}.{name[1]} with CUDA {name[2].removeprefix('cu')}" for name in names if len(name) == 3]


def missing(version: str, cuda: Optional[str], part: str, consequence: str) -> str:
    """Returns the sentence for a PyTorch for which this package has no file."""
    versions = ", ".join(available(part)) or "no version"
    return (
        f"freehold has no {part} for PyTorch {version} with CUDA {cuda or 'none'}: {consequence}; this package has one for "
        f"{versions}"
    )
