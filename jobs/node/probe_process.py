"""Runs a probe in a process of its own, and never waits for that process beyond a time limit."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Mapping, Sequence

END_SECONDS = 5.0
"""How long a process may take to end, by itself or once it is killed."""


def probe(
    command: Sequence[str], timeout_seconds: float, env: Mapping[str, str] | None = None
) -> str:
    """Run a command; returns what it printed.

    Raises RuntimeError with the last line of its stderr or its exit status if it failed, and at the
    time limit. ``subprocess.run`` would wait for ever for a process that waits for a dead driver.
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
        raise RuntimeError(f"it did not end within {timeout_seconds:g} s") from None
    if process.returncode != 0:
        raise RuntimeError(
            (errors.strip().splitlines() or [f"exit status {process.returncode}"])[-1]
        )
    return output
