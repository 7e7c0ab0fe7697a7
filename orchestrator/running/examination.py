"""Checks whether the nodes that trials would run on are fit to measure on, and equal."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jobs.node.checks.findings import Finding, ok, problem, warning
from jobs.spec import to_json
from orchestrator.running.nodes import NODE_SECONDS
from orchestrator.running.ray_address import advice, is_elsewhere, ray_address, why_unreachable
from orchestrator.units import count

Report = Mapping[str, Any]
"""The report on a node or on the cluster: name, versions, findings and calibrations."""


def examined(
    address: str | None, *, nvme: Path | None = None, calibrates: bool = False
) -> list[Report]:
    """The report of this machine, or of every node of a cluster, and that of the calibration."""
    from jobs.node import checks

    look = functools.partial(checks.report, nvme, calibrate=calibrates)
    reports: list[Report] = []
    if is_elsewhere(address):
        reports += examine_cluster(ray_address(address), look)
    else:
        reports.append(look())
    if calibrates:
        reports.append(_calibration_report(reports))
    return reports


def calibrations_of(reports: Sequence[Report]) -> list[Any]:
    """The calibrations of all GPUs."""
    calibrations = []
    for report in reports:
        calibrations += report.get("calibrations", [])
    return calibrations


def examine_cluster(address: str, look: Callable[[], Report]) -> list[Report]:
    """The report of every node, then the cluster's own.

    If the cluster cannot be joined, returns this machine's report and one that says why.
    """
    # Ray itself would wait for minutes before it reports an unreachable address.
    reason = why_unreachable(address)
    if reason:
        fix = "start Ray there, or correct the address or the firewall"
        return [look(), _cluster_report([problem(reason, fix)])]
    from orchestrator.running.cluster.connection import ask_nodes

    try:
        # One report from every node, or the error in its place.
        answers = ask_nodes(address, look, NODE_SECONDS)
    except (ConnectionError, RuntimeError, ValueError) as error:
        return [look(), _cluster_report([problem(_sentence(error), advice(str(error)))])]
    reports = []
    findings = []
    for node, answer in answers:
        if isinstance(answer, Exception):
            fix = "look at its Ray logs; this program must be installed there"
            findings.append(problem(f"{node} did not answer: {_sentence(answer)}", fix))
        else:
            reports.append(answer)
    return [*reports, _cluster_report([*findings, *version_findings(reports)])]


def _calibration_report(reports: Sequence[Report]) -> Report:
    """A report that judges the rates of all GPUs that were measured."""
    from jobs.node.checks.rates import judge

    findings = [to_json(finding.of("rates")) for finding in judge(calibrations_of(reports))]
    return {"node": "calibration", "versions": {}, "findings": findings}


def version_findings(reports: Sequence[Report]) -> list[Finding]:
    """One warning for each package whose version differs between nodes; else one "ok".

    Rows that were measured with different versions cannot be ranked together.
    """
    names: dict[str, None] = {}
    for report in reports:
        names |= dict.fromkeys(report["versions"])
    findings = []
    for name in names:
        nodes: dict[str, list[str]] = {}
        for report in reports:
            nodes.setdefault(report["versions"].get(name) or "none", []).append(report["node"])
        if len(nodes) > 1:
            listed = "; ".join(f"{version} on {', '.join(on)}" for version, on in nodes.items())
            message = f"{name} differs, rows will not be ranked together: {listed}"
            fix = "install the same version everywhere, best with -c constraints.txt"
            findings.append(warning(message, fix))
    return findings or [ok(f"{count(len(reports), 'node')} with equal versions")]


def _cluster_report(findings: Sequence[Finding]) -> Report:
    listed = [to_json(finding.of("cluster")) for finding in findings]
    return {"node": "cluster", "versions": {}, "findings": listed}


def _sentence(error: Exception) -> str:
    """The first sentence of an error, or of the traceback's last line if Ray quotes one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    line = lines[-1] if "Traceback" in str(error) else lines[0]
    return line.partition(". ")[0]
