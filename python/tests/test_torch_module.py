"""What `import freehold.torch` says without PyTorch."""

import importlib

import pytest


def test_without_torch_the_import_says_what_is_missing():
    try:
        import torch  # noqa: F401
    except ImportError:
        with pytest.raises(ImportError, match="torch"):
            importlib.import_module("freehold.torch")
    else:
        pytest.skip("PyTorch is installed")
