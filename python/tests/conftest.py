"""Packages that `cargo xtask test` installs for these tests, with what their .pth files do (numba-cuda's replaces numba.cuda)."""

import os
import site

import pytest

if "FREEHOLD_TEST_PACKAGES" in os.environ:
    site.addsitedir(os.environ["FREEHOLD_TEST_PACKAGES"])


@pytest.fixture
def driver():
    """The driver API. Streams that a test leaves waiting go on, also if it fails."""
    from driver import Driver

    driver = Driver()
    yield driver
    driver.open_gates()
