"""Runs a module of this program as a process of its own: ``python -P START MODULE ARGUMENTS...``.

``python -m`` would look into the working folder first, which may hold a folder ``jobs`` of the
user. Until it has found this program's packages, this file imports the standard library alone.
"""

import importlib
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path


def command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of this program, wherever it is started."""
    return [sys.executable, "-P", str(Path(__file__).resolve()), module, *arguments]


def main(arguments: Sequence[str]) -> None:
    """Run the module that the first argument names. The other arguments are for that module."""
    home = str(Path(__file__).resolve().parents[1])
    _import_from(home, arguments[0].partition(".")[0])
    # The user's own modules in the working folder come after everything that is installed.
    for folder in (home, os.getcwd()):
        if folder not in sys.path:
            sys.path.append(folder)
    sys.argv = list(arguments)
    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)


def _import_from(home: str, package: str) -> None:
    """Import this program's packages from their folder, which is in ``sys.path`` only meanwhile."""
    sys.path.insert(0, home)
    try:
        importlib.import_module("jobs")
        if package == "orchestrator":
            importlib.import_module(package)
    finally:
        sys.path.remove(home)


if __name__ == "__main__":
    main(sys.argv[1:])
