"""Check whether this machine, or every node of a Ray cluster, is fit to measure on."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator import cli
from orchestrator.storage.user_files import refuse_used_file
from orchestrator.units import count

if TYPE_CHECKING:
    from orchestrator.running.examination import Report


def main(arguments: Sequence[str] | None = None) -> int:
    """Examine the machine or the cluster, and print the findings. Returns the exit status."""
    options = command_line().parse_args(arguments)

    from orchestrator.running.examination import calibrations_of, examined

    if options.calibrate is not None:
        # Refuse now, and not after the half minute that measuring takes.
        try:
            refuse_used_file(options.calibrate, force=options.force)
        except FileExistsError as error:
            print(error, file=sys.stderr)
            return cli.EXIT_USAGE
    reports = examined(
        options.address,
        nvme=options.nvme,
        calibrates=options.calibrate is not None,
        links=options.links,
    )
    if options.calibrate is not None:
        import yaml

        text = yaml.safe_dump(calibrations_of(reports), sort_keys=False, allow_unicode=True)
        options.calibrate.write_text(text)
    if options.json:
        cli.print_json(reports)
    else:
        print(render(reports))
    for report in reports:
        if any(finding["severity"] == "problem" for finding in report["findings"]):
            return cli.EXIT_FAILURE
    return cli.EXIT_OK


def command_line() -> argparse.ArgumentParser:
    parser = cli.verb_parser("doctor", __doc__, "problems were found")
    add = parser.add_argument
    address = "examine every node of this Ray cluster (default: RAY_ADDRESS, if set)"
    add("--address", help=address)
    nvme = "measure the disk of this folder, which is meant for NVMe offload"
    add("--nvme", type=Path, metavar="PATH", help=nvme)
    calibrate = "measure every GPU, which must be idle (half a minute), and write the rates as YAML"
    add("--calibrate", type=Path, metavar="FILE", help=calibrate)
    links = "measure what the GPUs of a node exchange, which must be idle (half a minute)"
    add("--links", action="store_true", help=links)
    cli.add_force(parser)
    cli.add_json(parser)
    return parser


def render(reports: Sequence[Report]) -> str:
    """The reports as text: a section per node, a line per finding, and below it how to fix it."""
    lines = []
    severities = Counter[str]()
    for report in reports:
        lines.append(report["node"])
        for finding in report["findings"]:
            severities[finding["severity"]] += 1
            lines.append(f"  {finding['severity']:<8} {finding['check']:<14} {finding['message']}")
            if finding["fix"]:
                lines.append(f"  {'':<8} {'':<14} → {finding['fix']}")
        lines.append("")
    problems = count(severities["problem"], "problem")
    lines.append(f"{problems}, {count(severities['warning'], 'warning')}")
    return "\n".join(lines)


if __name__ == "__main__":
    cli.finish(main)
