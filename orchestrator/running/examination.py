"""Checks whether the nodes that trials would run on are fit to measure on, and equal."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jobs.node.checks.findings import Finding, ok, problem, warning
from jobs.spec import to_json
from orchestrator.running.nodes import ClusterError
from orchestrator.running.ray_address import is_elsewhere, ray_address
from orchestrator.units import count

Report = Mapping[str, Any]
"""The report on a node or on the cluster: name, versions, findings and calibrations."""


def examined(
    address: str | None, *, nvme: Path | None = None, calibrates: bool = False, links: bool = False
) -> list[Report]:
    """The report of this machine, or of every node of a cluster, and of the calibration."""
    from jobs.node import checks
    from jobs.node.checks.rates import judge

    look = functools.partial(checks.report, nvme, calibrate=calibrates, links=links)
    there = ray_address(address)
    reports: list[Report] = examine_cluster(there, look) if is_elsewhere(address) else [look()]
    if calibrates:
        # The rates of all GPUs that were measured are judged together.
        reports.append(_report("calibration", judge(calibrations_of(reports)), "rates"))
    return reports


def calibrations_of(reports: Sequence[Report]) -> list[Any]:
    """Those of all GPUs, each with what its node's GPUs exchange, if that was measured."""
    found = []
    for report in reports:
        links = {"links": own} if (own := report.get("links")) else {}
        found += [{**one, **links} for one in report.get("calibrations", ())]
    return found


def examine_cluster(address: str, look: Callable[[], Report]) -> list[Report]:
    """The report of every node, or this one's if none can be joined; then the cluster's."""
    from orchestrator.running.cluster.connection import ask_nodes

    try:
        # One report from every node, or the error in its place.
        answers = ask_nodes(address, look)
    except ClusterError as error:
        reason, _, fix = str(error).partition("; ")
        return [look(), _report("cluster", [problem(reason, fix)])]
    reports = []
    findings = []
    for node, answer in answers:
        if isinstance(answer, Exception):
            fix = "look at its Ray logs; this program must be installed there"
            findings.append(problem(f"{node} did not answer: {_sentence(answer)}", fix))
        else:
            reports.append(answer)
    return [*reports, _report("cluster", [*findings, *version_findings(reports)])]


def version_findings(reports: Sequence[Report]) -> list[Finding]:
    """A warning for each package whose version differs, so that rows do not rank; else "ok"."""
    findings = []
    for name in dict.fromkeys(name for report in reports for name in report["versions"]):
        nodes: dict[str, list[str]] = {}
        for report in reports:
            nodes.setdefault(report["versions"].get(name) or "none", []).append(report["node"])
        if len(nodes) > 1:
            listed = "; ".join(f"{version} on {', '.join(on)}" for version, on in nodes.items())
            message = f"{name} differs, rows will not be ranked together: {listed}"
            fix = "install the same version everywhere, best with -c constraints.txt"
            findings.append(warning(message, fix))
    return findings or [ok(f"{count(len(reports), 'node')} with equal versions")]


def _report(name: str, findings: Iterable[Finding], check: str = "cluster") -> Report:
    listed = [to_json(finding.of(check)) for finding in findings]
    return {"node": name, "versions": {}, "findings": listed}


def _sentence(error: Exception) -> str:
    """The first sentence of an error, or of the traceback's last line if Ray quotes one."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    line = lines[-1] if "Traceback" in str(error) else lines[0]
    return line.strip().partition(". ")[0]
