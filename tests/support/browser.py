"""The Chromium that page tests and benchmarks run: the distribution's, never a downloaded one."""

from __future__ import annotations

import os
import shutil

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
"""What distributions call it."""
VARIABLE = "CHROMIUM"
"""Environment variable that names the program, before all others."""
REQUIRED = "BROWSER_TESTS"
"""Environment variable; with ``required``, a missing browser fails the page tests."""


def chromium() -> str | None:
    """The program's path; None where there is none."""
    named = os.environ.get(VARIABLE)
    if named:
        return shutil.which(named)
    for name in NAMES:
        path = shutil.which(name)
        if path is not None:
            return path
    return None


def is_required() -> bool:
    """Whether page tests must run."""
    return os.environ.get(REQUIRED) == "required"
