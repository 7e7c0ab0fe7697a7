"""Is this node fit to measure on? Every check is one function and one row; the same run on every node.

``machine.py`` looks once; ``gpus.py``, ``packages.py``, ``toolchain.py`` and ``host.py`` judge what was seen: pure
functions from a ``Machine`` to findings, each file ending in its rows. A new check is a function and a row there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jobs.node import environment
from jobs.node.checks import gpus, host, packages, toolchain
from jobs.node.checks.base import Check, Finding, problem
from jobs.node.checks.machine import Machine, look
from jobs.spec import to_json

CHECKS: tuple[Check, ...] = (*gpus.CHECKS, *packages.CHECKS, *toolchain.CHECKS, *host.CHECKS)


def examine(machine: Machine) -> Iterator[Finding]:
    """What every check has to say of a machine, in the order of ``CHECKS``."""
    for check in CHECKS:
        for finding in check.judge(machine):
            yield finding.of(check.name)


def report(nvme: Path | None = None, *, calibrate: bool = False) -> dict[str, Any]:
    """This node's name, versions, findings and calibrations as plain JSON values.

    ``nvme`` is a folder whose disk to measure; ``calibrate`` measures every GPU, which takes half a minute.
    """
    machine = look(nvme)
    compared = ("ray", *environment.PACKAGES)
    versions = {name: machine.packages[name] for name in compared if name in machine.packages}
    findings = list(examine(machine))
    calibrations = []
    if calibrate:
        try:
            calibrations = _calibrations()
        except RuntimeError as error:
            findings.append(
                problem(str(error), "run python -m jobs.node.calibration to see all of it").of(
                    "calibration"
                )
            )
    return {
        "node": machine.node,
        "versions": {"python": machine.python, **versions, "driver": machine.driver},
        "findings": [to_json(finding) for finding in findings],
        "calibrations": calibrations,
    }


def _calibrations() -> list[dict[str, Any]]:
    from jobs.node import calibration

    return calibration.calibrate_all()
