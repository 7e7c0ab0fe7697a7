"""Commands that have run in the root of the repository, with what they printed."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def ran(*command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """A command that has ended, however it ended; ``options`` are those of subprocess.run."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.run(command, **{"cwd": ROOT, "text": True, **pipes, **options})


def printed_json(text: str) -> Any:
    """What a program printed as a line of JSON, among what its libraries printed."""
    (line,) = (line for line in text.splitlines() if line.startswith("{"))
    return json.loads(line)


def python(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """This Python, which has run with these arguments."""
    return ran(sys.executable, *arguments, **options)
