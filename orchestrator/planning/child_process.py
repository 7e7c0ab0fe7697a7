"""Asks a module of this program a question, in a separate process."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

from jobs import self_process

_SHOWN_CHARACTERS = 300


class ChildError(RuntimeError):
    """The process gave no answer; the text says why in one sentence."""


def answer_of(module: str, question: Any, *, timeout_seconds: float) -> Any:
    """The answer of a module to a question.

    The module reads the question from stdin as JSON, and prints its answer as JSON on the last
    line. Its process sees no GPU and may not download from Hugging Face. Raises ChildError if there
    is no answer.
    """
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    try:
        ran = subprocess.run(
            self_process.command(module),
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
        # A library may print other lines first.
        return json.loads(lines[-1])
    except (IndexError, ValueError):
        errors = ran.stderr.strip().splitlines() or [f"exit status {ran.returncode}"]
        raise ChildError(errors[-1][:_SHOWN_CHARACTERS]) from None
