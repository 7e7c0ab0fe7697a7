"""Runs a probe in a process of its own, and never waits for that process beyond a time limit."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

END_SECONDS = 5.0
"""How long a process may take to end, by itself or once it is killed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Probed:
    """The result of a probe."""

    output: str = ""
    """What it printed."""
    error: str = ""
    """Why it failed: the last line of its stderr, or its exit status. Empty: it ended well."""


def probe(
    command: Sequence[str], timeout_seconds: float, env: Mapping[str, str] | None = None
) -> Probed:
    """Run a command. If it does not end in time, it is killed and counts as failed.

    A process that waits for a dead driver cannot even be killed. This function then returns without
    waiting for its end. ``subprocess.run`` would wait for ever.
    """
    process = subprocess.Popen(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        output, errors = process.communicate(timeout=timeout_seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=END_SECONDS)
        return Probed(error=f"it did not end within {timeout_seconds:g} s")
    if process.returncode == 0:
        return Probed(output=output)
    # The last line of a traceback is the error.
    lines = errors.strip().splitlines() or [f"exit status {process.returncode}"]
    return Probed(output=output, error=lines[-1])
