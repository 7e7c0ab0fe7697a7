"""Explain why one trial of a run is faster than another, or takes less memory."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from orchestrator import cli

EXIT_UNEXPLAINED = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Explain the difference and print it. Returns the exit status."""
    options = command_line().parse_args(arguments)

    from orchestrator.analysis.explanation.two_trials import NotExplainableError, explain
    from orchestrator.reporting.verbs.explanation import render, to_json
    from orchestrator.storage.run_metadata import UnreadableRunError

    try:
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
    if options.json:
        cli.print_json(to_json(explanation))
    else:
        print(render(explanation))
    return cli.EXIT_OK


def command_line() -> argparse.ArgumentParser:
    unexplained = "a trial was not measured, or the two ran in different environments"
    others = {EXIT_UNEXPLAINED: unexplained}
    parser = cli.verb_parser("explain", __doc__, others=others)
    cli.add_run(parser)
    parser.add_argument("before", metavar="TRIAL_A", help="a trial's id, or its beginning")
    parser.add_argument("after", metavar="TRIAL_B", help="the trial to compare it with")
    cli.add_json(parser)
    return parser


if __name__ == "__main__":
    cli.finish(main)
