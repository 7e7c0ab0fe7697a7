"""Checks whether this node is fit to measure on. Each check is one function and one row.

All checks run on every node of a cluster.

machine            gathers the facts about the node, without judging them
installed          what of software is on it, read without importing anything
findings           what a check and a finding are
gpu_health, toolchain, host_resources
                   the checks: pure functions from a ``Machine`` to findings; each file ends with
                   its rows of ``CHECKS``
rates              compares measured GPUs with each other

To add a check, add a function and a row.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jobs.node import environment, nvml
from jobs.node.checks import gpu_health, host_resources, rates, toolchain
from jobs.node.checks.findings import Check, Finding, problem
from jobs.node.checks.machine import Machine, look
from jobs.spec import to_json

CHECKS: Mapping[str, Check] = {
    **gpu_health.CHECKS,
    **toolchain.CHECKS,
    **host_resources.CHECKS,
}
"""Every check by its name, in the order in which findings are shown."""


def examine(machine: Machine) -> Iterator[Finding]:
    """The findings of every check, in the order of ``CHECKS``."""
    for name, check in CHECKS.items():
        yield from (finding.of(name) for finding in check(machine))


def report(
    nvme: Path | None = None, *, calibrate: bool = False, links: bool = False
) -> dict[str, Any]:
    """This node's name, versions, findings and calibrations as plain JSON values. ``nvme`` is a
    folder whose disk is measured. ``calibrate`` measures every GPU, and ``links`` what they
    exchange, which takes half a minute each."""
    machine = look(nvme)
    findings = list(examine(machine))
    calibrations: list[dict[str, Any]] = []
    if calibrate:
        from jobs.node import calibration

        try:
            calibrations = calibration.calibrate_all()
        except RuntimeError as error:  # a GPU that cannot be measured is a finding, too
            fix = "run python -m jobs.node.calibration to see the whole error"
            findings.append(problem(f"the calibration failed: {error}", fix).of("calibration"))
    figures: list[dict[str, Any]] = []
    if links and (count := len(nvml.visible_uuids())) > 1:
        from jobs.node import collectives

        try:
            figures = collectives.measure(count)
            findings += [finding.of("links") for finding in rates.of_links(figures)]
        except RuntimeError as error:
            fix = "look at NCCL's messages with NCCL_DEBUG=INFO"
            findings.append(problem(f"the GPUs exchange nothing: {error}", fix).of("links"))
    names = [name for name in ("ray", *environment.PACKAGES) if name in machine.packages]
    packages = {name: machine.packages[name] for name in names}
    return {
        "node": machine.node,
        "versions": {"python": machine.python, **packages, "driver": machine.driver},
        "findings": [to_json(finding) for finding in findings],
        "calibrations": calibrations,
        "links": figures,
    }
