"""The Chromium that page tests and benchmarks run: the distribution's, never a downloaded one."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
"""What distributions call it."""


def chromium() -> str | None:
    """The program's path, the one that the variable CHROMIUM names if it is set; None: none."""
    named = os.environ.get("CHROMIUM")
    paths = (shutil.which(name) for name in ([named] if named else NAMES))
    return next((path for path in paths if path is not None), None)


def is_required() -> bool:
    """Whether page tests must run: BROWSER_TESTS=required, as in CI."""
    return os.environ.get("BROWSER_TESTS") == "required"


@contextmanager
def headless() -> Iterator[Any]:
    """A headless Chromium; None without the program or playwright."""
    path = chromium()
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        path = None
    if path is None:
        yield None
        return
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()
