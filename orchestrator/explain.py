"""Explain why one trial of a run is faster than another, or takes less memory."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator import cli

if TYPE_CHECKING:
    from orchestrator.analysis.explanation.result import Explanation

EXIT_UNEXPLAINED = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Explain the difference and print it. Returns the exit status."""
    options = command_line().parse_args(arguments)

    from orchestrator.analysis.explanation.two_trials import NotExplainableError, explain
    from orchestrator.distribution import NO_PICTURES, can_draw
    from orchestrator.storage.run_metadata import UnreadableRunError
    from orchestrator.storage.user_files import refuse_used_file

    if options.picture is not None and not can_draw():
        print(NO_PICTURES, file=sys.stderr)
        return cli.EXIT_USAGE
    try:
        if options.picture is not None:
            refuse_used_file(options.picture, force=options.force)
        run = cli.loaded(options.run, "explain")
        if run is None:
            return cli.EXIT_USAGE
        explanation = explain(run.dataset, options.before, options.after)
    except NotExplainableError as error:
        print(error, file=sys.stderr)
        return EXIT_UNEXPLAINED
    except (LookupError, OSError, UnreadableRunError) as error:
        print(error, file=sys.stderr)
        return cli.EXIT_USAGE
    _print(explanation, options)
    return cli.EXIT_OK


def _print(explanation: Explanation, options: argparse.Namespace) -> None:
    from orchestrator.reporting.verbs.explanation import render, to_json

    if options.json:
        cli.print_json(to_json(explanation))
    else:
        print(render(explanation))
    if options.picture is not None:
        from orchestrator.reporting.plots import breakdown_bars as plot

        options.picture.write_bytes(plot.render(explanation))


def command_line() -> argparse.ArgumentParser:
    unexplained = "a trial was not measured, or the two ran in different environments"
    others = {EXIT_UNEXPLAINED: unexplained}
    parser = cli.verb_parser("explain", __doc__, "the picture cannot be written", others)
    cli.add_run(parser)
    parser.add_argument("before", metavar="TRIAL_A", help="a trial's id, or its beginning")
    parser.add_argument("after", metavar="TRIAL_B", help="the trial to compare it with")
    cli.add_json(parser)
    picture = "also draw where time and memory went"
    parser.add_argument("--picture", type=Path, metavar="FILE.png", help=picture)
    cli.add_force(parser)
    return parser


if __name__ == "__main__":
    cli.finish(main)
