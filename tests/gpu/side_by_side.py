"""A trial of this project, and a script that trains the same with the libraries alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jobs.isolation.slot import Slot
from jobs.record import Outcome, TrialRecord
from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan

ROOT = Path(__file__).parents[2]
TIMEOUT = 600.0
"""Seconds that a trial or a script may take."""


def run_here(*command: str) -> str:
    """What a Python command of this project prints. Fails with its output if it fails."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def bare_figures(script: str, *arguments: str) -> Mapping[str, Any]:
    """The figures that a script of this folder prints on its last line, as JSON."""
    output = run_here(f"tests/gpu/{script}", *arguments)
    figures: Mapping[str, Any] = json.loads(output.splitlines()[-1])
    print(figures)
    return figures


def measured(slot: Slot, folder: Path, config: Mapping[str, Any]) -> TrialRecord:
    """The record of the only trial of a configuration, which must end ok."""
    path = folder / "sweep.yaml"
    path.write_text(json.dumps(config))
    (spec,) = plan(load_config(path)).trials
    record = slot.run(spec, TIMEOUT)
    assert record.outcome is Outcome.OK, f"{record.reason}\n{record.provenance.log}"
    return record
