"""Compare two runs of the same configurations: what got faster, slower, leaner, fatter, broken or mended."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from orchestrator.cli import EXIT_OK, EXIT_USAGE, add_run, epilog, finish, share

EXIT_WORSE, EXIT_UNLIKE = 1, 3

_UNLIKE = ("gpu_model", "cpu_model", "model", "data")
"""Differences, by their first word, that make figures incomparable rather than interesting."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 compared, 1 worse by more than --fail-over, 2 for a wrong call, 3 when the runs are too unlike."""
    options = command_line().parse_args(arguments)

    from orchestrator.analysis.comparison import compare
    from orchestrator.api import load
    from orchestrator.reporting.comparison import markdown, render, to_json
    from orchestrator.storage.run_metadata import UnreadableRunError

    try:
        before, after = load(options.before), load(options.after)
    except FileNotFoundError as error:
        print(f"no records and no table to compare ({error})", file=sys.stderr)
        return EXIT_USAGE
    except (OSError, UnreadableRunError) as error:
        print(error, file=sys.stderr)
        return EXIT_USAGE
    found = compare(before, after, unlike=options.unlike)
    unlike = [
        f"{what}: {old} / {new}"
        for what, old, new in found.differences
        if what.split()[0] in _UNLIKE
    ]
    if unlike and not options.unlike:
        print(
            f"the runs are too unlike to compare (--unlike does it all the same): {'; '.join(unlike)}",
            file=sys.stderr,
        )
        return EXIT_UNLIKE
    if not found.matched:
        print("the runs have no configuration in common that ended ok in both", file=sys.stderr)
    if options.json:
        print(json.dumps(to_json(before, after, found), indent=2))
    else:
        print((markdown if options.markdown else render)(before, after, found))
    failed = options.fail_over is not None and found.fails(options.fail_over)
    return EXIT_WORSE if failed else EXIT_OK


def command_line() -> argparse.ArgumentParser:
    """What the verb takes."""
    parser = argparse.ArgumentParser(
        prog="python -m orchestrator.compare",
        description=__doc__,
        epilog=epilog(
            {EXIT_WORSE: "worse by more than --fail-over", EXIT_UNLIKE: "the runs are too unlike"}
        ),
    )
    add_run(parser, "before", "RUN_A", "the earlier run")
    add_run(parser, "after", "RUN_B", "the later run")
    parser.add_argument(
        "--fail-over",
        type=share,
        metavar="3%",
        help="exit 1 when anything got slower or fatter by more than this, broke, or trains differently",
    )
    parser.add_argument(
        "--unlike", action="store_true", help="compare even unlike GPUs, models, data or hosts"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--markdown", action="store_true", help="print Markdown for GitHub")
    return parser


if __name__ == "__main__":
    finish(main)
