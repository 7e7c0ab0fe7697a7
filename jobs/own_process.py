"""Runs a module of this program as a process of its own: ``python -P START MODULE ARGUMENTS...``.

``python -m`` would look into the working folder first, where a folder ``jobs`` of the user's may
lie. Nothing but the standard library is imported here before that is decided.
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

_PACKAGES = ("jobs", "orchestrator")


def command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of this program, wherever it is started."""
    return [sys.executable, "-P", str(Path(__file__).resolve()), module, *arguments]


def main(arguments: Sequence[str]) -> None:
    """Run the module that the first argument names; the others are its own."""
    home = str(Path(__file__).resolve().parents[1])
    _import_from(home, arguments[0].partition(".")[0])
    # What the user's own modules import is found as before, but after everything installed.
    for folder in (home, os.getcwd()):
        if folder not in sys.path:
            sys.path.append(folder)
    sys.argv = list(arguments)
    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)


def _import_from(home: str, package: str) -> None:
    """Import this program's packages from where they lie.

    A package that is imported keeps its folder, so that the order of the path does not matter
    afterwards. The folder is on the path only meanwhile: among installed packages there can be
    namesakes of the standard library.
    """
    sys.path.insert(0, home)
    try:
        for name in dict.fromkeys(("jobs", package)):
            if name in _PACKAGES:
                importlib.import_module(name)
    finally:
        sys.path.remove(home)


if __name__ == "__main__":
    main(sys.argv[1:])
