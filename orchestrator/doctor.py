"""Check whether this machine, or every node of a Ray cluster, is fit to measure on."""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.cli import EXIT_FAILURE, EXIT_OK, EXIT_USAGE, add_force, add_json, epilog, finish
from orchestrator.running.ray_address import advice, is_elsewhere, ray_address, why_unreachable
from orchestrator.storage.user_files import refuse_used_file
from orchestrator.units import count

NODE_SECONDS = 120.0
"""How long a node may take to answer."""

Report = Mapping[str, Any]
"""The report on a node or on the cluster: name, versions, findings and calibrations."""
Finding = Mapping[str, str]
"""A ``jobs.node.checks.findings.Finding`` as plain values."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Examine the machine or the cluster, and print the findings. Returns the exit status.

    0 no problems (there may be warnings), 1 problems, 2 for a wrong call.
    """
    options = command_line().parse_args(arguments)
    if options.calibrate is not None:
        # Refuse now, and not after the half minute that measuring takes.
        try:
            refuse_used_file(options.calibrate, force=options.force)
        except FileExistsError as error:
            print(error, file=sys.stderr)
            return EXIT_USAGE
    reports = _examined(options)
    if options.json:
        print(json.dumps(reports, indent=2))
    else:
        print(render(reports))
    if findings_of(reports, "problem"):
        return EXIT_FAILURE
    return EXIT_OK


def _examined(options: argparse.Namespace) -> list[Report]:
    """The report of this machine, or of every node of a cluster, and that of the calibration."""
    from jobs.node import checks

    calibrates = options.calibrate is not None
    look = functools.partial(checks.report, options.nvme, calibrate=calibrates)
    reports: list[Report] = []
    if is_elsewhere(options.address):
        reports += examine_cluster(ray_address(options.address), look)
    else:
        reports.append(look())
    if calibrates:
        reports.append(calibration_report(reports, options.calibrate))
    return reports


def command_line() -> argparse.ArgumentParser:
    """The parser of the verb's command line."""
    parser = argparse.ArgumentParser(
        prog="python -m orchestrator.doctor",
        description=__doc__,
        epilog=epilog({EXIT_FAILURE: "problems were found"}),
    )
    add = parser.add_argument
    address = "examine every node of this Ray cluster (default: RAY_ADDRESS, if set)"
    add("--address", help=address)
    nvme = "measure the disk of this folder, which is meant for NVMe offload"
    add("--nvme", type=Path, metavar="PATH", help=nvme)
    calibrate = "measure every GPU, which must be idle (half a minute), and write the rates as YAML"
    add("--calibrate", type=Path, metavar="FILE", help=calibrate)
    add_force(parser)
    add_json(parser)
    return parser


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


def calibration_report(reports: Sequence[Report], file: Path) -> Report:
    """Write the calibrations of all GPUs to a YAML file, and judge the measured rates.

    Returns a report with the findings.
    """
    import yaml

    from jobs.node.checks.rates import judge
    from jobs.spec import to_json

    calibrations = []
    for report in reports:
        calibrations += report.get("calibrations", [])
    file.write_text(yaml.safe_dump(calibrations, sort_keys=False, allow_unicode=True))
    findings = [to_json(finding.of("rates")) for finding in judge(calibrations)]
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


def render(reports: Sequence[Report]) -> str:
    """The reports as text: a section per node, a line per finding, and below it how to fix it."""
    lines = []
    for report in reports:
        lines.append(report["node"])
        for finding in report["findings"]:
            lines += _finding_lines(finding)
        lines.append("")
    problems = len(findings_of(reports, "problem"))
    warnings = len(findings_of(reports, "warning"))
    lines.append(f"{count(problems, 'problem')}, {count(warnings, 'warning')}")
    return "\n".join(lines)


def _finding_lines(finding: Finding) -> list[str]:
    lines = [f"  {finding['severity']:<8} {finding['check']:<14} {finding['message']}"]
    if finding["fix"]:
        lines.append(f"  {'':<8} {'':<14} → {finding['fix']}")
    return lines


def findings_of(reports: Sequence[Report], severity: str) -> list[Finding]:
    """The findings of one severity in all reports."""
    findings = []
    for report in reports:
        for finding in report["findings"]:
            if finding["severity"] == severity:
                findings.append(finding)
    return findings


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


if __name__ == "__main__":
    finish(main)
