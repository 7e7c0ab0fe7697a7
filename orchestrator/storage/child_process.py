"""A module of this program run as a process of its own, wherever the command was started."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

from jobs import own_process

_SHOWN_CHARACTERS = 300


class ChildError(RuntimeError):
    """The process did not answer; one sentence."""


def answer_of(module: str, question: Any, *, timeout_seconds: float) -> Any:
    """What a module prints as JSON, given a question as JSON on its stdin; it sees no GPU.

    Raises ChildError.
    """
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    try:
        ran = subprocess.run(
            own_process.command(module),
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
