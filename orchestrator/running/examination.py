"""Checks whether the nodes that trials would run on are fit to measure on, and equal."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.running.ray_address import advice, is_elsewhere, ray_address, why_unreachable
from orchestrator.units import count

NODE_SECONDS = 120.0
"""How long a node may take to answer."""

Report = Mapping[str, Any]
"""The report on a node or on the cluster: name, versions, findings and calibrations."""
Finding = Mapping[str, str]
"""A ``jobs.node.checks.base.Finding`` as plain values."""


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
        return [look(), _cluster_report([_problem(reason, fix)])]
    from orchestrator.running.cluster.connection import ask_nodes

    try:
        # One report from every node, or the error in its place.
        answers = ask_nodes(address, look, NODE_SECONDS)
    except (ConnectionError, RuntimeError, ValueError) as error:
        return [look(), _cluster_report([_problem(_sentence(error), advice(str(error)))])]
    reports = [answer for _, answer in answers if not isinstance(answer, Exception)]
    findings = []
    for node, answer in answers:
        if isinstance(answer, Exception):
            findings.append(_silent_node(node, answer))
    findings += version_findings(reports)
    return [*reports, _cluster_report(findings)]


def _silent_node(node: str, error: Exception) -> Finding:
    fix = "look at its Ray logs; this program must be installed there"
    return _problem(f"{node} did not answer: {_sentence(error)}", fix)


def _calibration_report(reports: Sequence[Report]) -> Report:
    """A report that judges the rates of all GPUs that were measured."""
    from jobs.node.checks.rates import judge
    from jobs.spec import to_json

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
        nodes = _nodes_by_version(reports, name)
        if len(nodes) > 1:
            findings.append(_differing_versions(name, nodes))
    if findings:
        return findings
    return [_finding("ok", f"{count(len(reports), 'node')} with equal versions")]


def _differing_versions(name: str, nodes: Mapping[str, Sequence[str]]) -> Finding:
    """A warning that names the nodes of each version."""
    by_version = [f"{version} on {', '.join(names)}" for version, names in nodes.items()]
    listed = "; ".join(by_version)
    message = f"{name} differs, rows will not be ranked together: {listed}"
    fix = "install the same version everywhere, best with -c constraints.txt"
    return _finding("warning", message, fix)


def _nodes_by_version(reports: Sequence[Report], name: str) -> dict[str, list[str]]:
    """Version of a package -> the nodes that have it. "none" stands for a missing package."""
    nodes: dict[str, list[str]] = {}
    for report in reports:
        version = report["versions"].get(name) or "none"
        nodes.setdefault(version, []).append(report["node"])
    return nodes


def _cluster_report(findings: Sequence[Finding]) -> Report:
    return {"node": "cluster", "versions": {}, "findings": list(findings)}


def _problem(message: str, fix: str) -> Finding:
    return _finding("problem", message, fix)


def _finding(severity: str, message: str, fix: str = "") -> Finding:
    return {"check": "cluster", "severity": severity, "message": message, "fix": fix}


def _sentence(error: Exception) -> str:
    """The first sentence of an error, or of the traceback's last line if Ray quotes one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    line = lines[0]
    if "Traceback" in str(error):
        line = lines[-1]
    return line.partition(". ")[0]
