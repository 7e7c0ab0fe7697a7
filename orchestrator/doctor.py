"""Say whether this machine, or every node of a Ray cluster, is fit to measure on, and how to mend what is not."""

from __future__ import annotations

import argparse
import functools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.cli import EXIT_FAILURE, EXIT_OK, add_json, epilog, finish
from orchestrator.running.ray_address import to_mend, unreachable

NODE_SECONDS = 120.0
"""A node that has not answered by then is not going to."""

Report = Mapping[str, Any]
"""A node or the cluster: its name, versions, findings and calibrations as plain values."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 no problem (there may be warnings), 1 problems were found, 2 for a wrong call."""
    options = command_line().parse_args(arguments)
    from jobs.node import checks

    look = functools.partial(checks.report, options.nvme, calibrate=options.calibrate is not None)
    address = options.address or os.environ.get("RAY_ADDRESS")
    reports: list[Report] = examine_cluster(address, look) if address else [look()]
    if options.calibrate is not None:
        reports.append(calibrated(reports, options.calibrate))
    print(json.dumps(reports, indent=2) if options.json else render(reports))
    return EXIT_FAILURE if count(reports, "problem") else EXIT_OK


def command_line() -> argparse.ArgumentParser:
    """What the verb takes."""
    parser = argparse.ArgumentParser(
        prog="python -m orchestrator.doctor",
        description=__doc__,
        epilog=epilog({EXIT_FAILURE: "problems were found"}),
    )
    parser.add_argument(
        "--address", help="examine every node of this Ray cluster (default: RAY_ADDRESS, if set)"
    )
    parser.add_argument(
        "--nvme", type=Path, metavar="PATH", help="measure this folder's disk for NVMe offload"
    )
    parser.add_argument(
        "--calibrate",
        type=Path,
        metavar="FILE",
        help="measure idle GPUs (half a minute) and write their rates as YAML",
    )
    add_json(parser)
    return parser


def examine_cluster(address: str, look: Callable[[], Report]) -> list[Report]:
    """Every node's report, then the cluster's own. Where the cluster cannot be joined: this machine's, and why."""
    if reason := unreachable(address):
        return [
            look(),
            _section(
                "cluster", _problem(reason, "start Ray there, or mend the address or the firewall")
            ),
        ]
    from orchestrator.running import cluster

    try:
        answers = cluster.ask_nodes(address, look, NODE_SECONDS)
    except (
        ConnectionError,
        RuntimeError,
        ValueError,
    ) as error:  # no cluster or token, other versions, no address
        return [look(), _section("cluster", _problem(_sentence(error), to_mend(str(error))))]
    reports: list[Report] = [answer for _, answer in answers if isinstance(answer, dict)]
    mend = "look at its Ray logs; this program must be installed there"
    silent = [
        _problem(f"{node} did not answer: {_sentence(error)}", mend)
        for node, error in answers
        if isinstance(error, Exception)
    ]
    return [*reports, _section("cluster", *silent, *disagreements(reports))]


def calibrated(reports: Sequence[Report], file: Path) -> Report:
    """Write what was measured of every GPU to a YAML file; the section that compares GPUs of one model."""
    import yaml

    from jobs.node.checks.rates import judge
    from jobs.spec import to_json

    measured = [one for report in reports for one in report.get("calibrations", [])]
    file.write_text(yaml.safe_dump(measured, sort_keys=False, allow_unicode=True))
    return _section("calibration", *(to_json(finding.of("rates")) for finding in judge(measured)))


def disagreements(reports: Sequence[Report]) -> list[dict[str, str]]:
    """Versions that differ between nodes: their rows cannot be ranked together."""
    findings = []
    for name in dict.fromkeys(name for report in reports for name in report["versions"]):
        found: dict[str, list[str]] = {}
        for report in reports:
            found.setdefault(report["versions"].get(name) or "none", []).append(report["node"])
        if len(found) > 1:
            listed = "; ".join(
                f"{version} on {', '.join(nodes)}" for version, nodes in found.items()
            )
            mend = "install the same everywhere, best with -c constraints.txt"
            findings.append(
                _finding(
                    "warning", f"{name} differs, rows will not be ranked together: {listed}", mend
                )
            )
    return findings or [
        _finding("ok", f"{len(reports)} node{'s' * (len(reports) != 1)}, versions alike")
    ]


def render(reports: Sequence[Report]) -> str:
    """The reports for people: a section a node, a line a finding, the mending under it."""
    lines = []
    for report in reports:
        lines.append(report["node"])
        for finding in report["findings"]:
            lines.append(f"  {finding['severity']:<8} {finding['check']:<14} {finding['message']}")
            if finding["mend"]:
                lines.append(f"  {'':<8} {'':<14} → {finding['mend']}")
        lines.append("")
    problems, warnings = count(reports, "problem"), count(reports, "warning")
    lines.append(
        f"{problems} problem{'s' * (problems != 1)}, {warnings} warning{'s' * (warnings != 1)}"
    )
    return "\n".join(lines)


def count(reports: Sequence[Report], severity: str) -> int:
    """Findings of one severity in all reports."""
    return sum(
        finding["severity"] == severity for report in reports for finding in report["findings"]
    )


def _section(name: str, *findings: Mapping[str, str]) -> Report:
    return {"node": name, "versions": {}, "findings": list(findings)}


def _problem(message: str, mend: str) -> dict[str, str]:
    return _finding("problem", message, mend)


def _finding(severity: str, message: str, mend: str = "") -> dict[str, str]:
    return {"check": "cluster", "severity": severity, "message": message, "mend": mend}


def _sentence(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    line = (lines[-1] if "Traceback" in str(error) else lines[0]) if lines else type(error).__name__
    return line.partition(". ")[0]


if __name__ == "__main__":
    finish(main)
