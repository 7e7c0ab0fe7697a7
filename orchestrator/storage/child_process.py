"""A module of this program run as a process of its own, wherever the command was started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

_HOME = Path(__file__).parents[2]
"""The folder that holds this program's packages."""
_RUN = (
    "import sys; sys.path.insert(0, {home!r}); import runpy; "
    "runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
)
_SHOWN_CHARACTERS = 300


class ChildError(RuntimeError):
    """The process did not answer; one sentence."""


def command(module: str) -> list[str]:
    """The command that runs a module of this program.

    ``-P`` keeps the working folder off the path: a folder ``jobs`` of the user's must not be taken
    for ours.
    """
    return [sys.executable, "-P", "-c", _RUN.format(home=str(_HOME), module=module)]


def answer_of(module: str, question: Any, *, timeout_seconds: float) -> Any:
    """What a module prints as JSON, given a question as JSON on its stdin; it sees no GPU.

    Raises ChildError.
    """
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    try:
        ran = subprocess.run(
            command(module),
            input=json.dumps(question),
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        raise ChildError(f"no answer within {timeout_seconds:.0f} s") from None
    except OSError as error:
        raise ChildError(error.strerror or type(error).__name__) from None
    lines = ran.stdout.splitlines()
    try:
        # A library may print before us; the answer is the last line.
        return json.loads(lines[-1])
    except (IndexError, ValueError):
        errors = ran.stderr.strip().splitlines() or [f"exit status {ran.returncode}"]
        raise ChildError(errors[-1][:_SHOWN_CHARACTERS]) from None
