"""Packages that `cargo xtask test` installs for these tests, with what their .pth files do (numba-cuda's replaces numba.cuda)."""

import os
import site

if "FREEHOLD_TEST_PACKAGES" in os.environ:
    site.addsitedir(os.environ["FREEHOLD_TEST_PACKAGES"])
