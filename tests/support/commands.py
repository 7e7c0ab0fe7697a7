"""Commands that have run in the root of the repository, with what they printed."""

import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def ran(*command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """A command that has ended, however it ended; ``options`` are those of subprocess.run."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.run(command, **{"cwd": ROOT, "text": True, **pipes, **options})


def python(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """This Python, which has run with these arguments."""
    return ran(sys.executable, *arguments, **options)
