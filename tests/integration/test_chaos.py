"""A short chaos run: what `make chaos` does a hundred times, for the kinds that need the fewest seconds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KINDS = [
    "SIGKILL of the trial",
    "slot's parent",
    "SIGKILL of the driver",
    "foreign file",
    "GPU answers no more",
    "process on a GPU",
]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nothing_is_lost_missing_or_repeated() -> None:
    command = [
        sys.executable,
        "-m",
        "tests.chaos",
        "--faults",
        str(len(KINDS)),
        "--seed",
        "1",
        "--kinds",
        *KINDS,
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if "which this system does not grant" in done.stderr:
        pytest.skip("no namespaces here")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert f"{len(KINDS)} of {len(KINDS)} faults, of {len(KINDS)} kinds" in done.stdout
