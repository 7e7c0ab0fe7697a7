"""Compare two runs of the same configurations: what changed in speed, memory, losses, outcome."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from orchestrator import argument_types, cli

if TYPE_CHECKING:
    from orchestrator.analysis.comparison.changes import Comparison
    from orchestrator.analysis.dataset import Dataset

EXIT_WORSE, EXIT_DIFFERENT_HARDWARE = 1, 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare two runs and print the result. Returns the exit status."""
    options = command_line().parse_args(arguments)
    before, after = (cli.loaded(run, "compare") for run in (options.before, options.after))
    if before is None or after is None:
        return cli.EXIT_USAGE
    return _compare(before.dataset, after.dataset, options)


def _compare(before: Dataset, after: Dataset, options: argparse.Namespace) -> int:
    from orchestrator.analysis.comparison.two_runs import compare

    comparison = compare(before, after, different_hosts=options.different_hardware)
    different = _incomparable(comparison)
    if different and not options.different_hardware:
        what = "the runs differ in hardware, model or data (--different-hardware compares them)"
        print(f"{what}: {'; '.join(different)}", file=sys.stderr)
        return EXIT_DIFFERENT_HARDWARE
    if not comparison.matched:
        print("no configuration ended ok in both runs", file=sys.stderr)
    _print(before, after, comparison, options)
    if options.fail_over is not None and comparison.fails(options.fail_over):
        return EXIT_WORSE
    return cli.EXIT_OK


def _print(
    before: Dataset, after: Dataset, comparison: Comparison, options: argparse.Namespace
) -> None:
    from orchestrator.reporting.verbs.comparison import markdown, render, to_json

    if options.json:
        cli.print_json(to_json(before, after, comparison))
    elif options.markdown:
        print(markdown(before, after, comparison))
    else:
        print(render(before, after, comparison))


def _incomparable(comparison: Comparison) -> list[str]:
    listed = []
    for difference in comparison.differences:
        is_hardware = difference.name in ("gpu_model", "cpu_model")
        if is_hardware or difference.part in ("model", "data"):
            listed.append(f"{difference.label}: {difference.before} -> {difference.after}")
    return listed


def command_line() -> argparse.ArgumentParser:
    others = {EXIT_DIFFERENT_HARDWARE: "the runs differ in hardware, model or data"}
    parser = cli.verb_parser("compare", __doc__, "worse by more than --fail-over", others)
    cli.add_run(parser, "before", "RUN_A", "the earlier run")
    cli.add_run(parser, "after", "RUN_B", "the later run")
    fail_over = (
        "exit 1 when anything got slower or takes more memory by more than this, regressed, or "
        "has other losses"
    )
    parser.add_argument("--fail-over", type=argument_types.share, metavar="3%", help=fail_over)
    different = "compare runs of different GPUs, models, data or hosts all the same"
    parser.add_argument("--different-hardware", action="store_true", help=different)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--markdown", action="store_true", help="print Markdown for GitHub")
    return parser


if __name__ == "__main__":
    cli.finish(main)
