"""Explain why one trial of a run is faster or leaner than another."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from orchestrator.cli import EXIT_FAILURE, EXIT_OK, EXIT_USAGE, add_json, add_run, epilog, finish

EXIT_UNEXPLAINED = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 explained, 2 no such run or trial, 3 a trial was not measured or not on the same hardware."""
    options = command_line().parse_args(arguments)

    from orchestrator.analysis.explanation import NotExplainableError, explain
    from orchestrator.api import load
    from orchestrator.reporting.explanation import render, to_json
    from orchestrator.storage.run_metadata import UnreadableRunError

    try:
        found = explain(load(options.run), options.before, options.after)
    except FileNotFoundError as error:
        print(f"no records and no table to explain ({error})", file=sys.stderr)
        return EXIT_USAGE
    except NotExplainableError as error:
        print(error, file=sys.stderr)
        return EXIT_UNEXPLAINED
    except (OSError, LookupError, UnreadableRunError) as error:
        print(*error.args if isinstance(error, LookupError) else (error,), file=sys.stderr)
        return EXIT_USAGE
    print(json.dumps(to_json(found), indent=2) if options.json else render(found))
    if options.picture is not None:
        from orchestrator.reporting import explanation_plot

        options.picture.write_bytes(explanation_plot.render(found))
    return EXIT_OK


def command_line() -> argparse.ArgumentParser:
    """What the verb takes."""
    parser = argparse.ArgumentParser(
        prog="python -m orchestrator.explain",
        description=__doc__,
        epilog=epilog(
            {
                EXIT_FAILURE: "the picture cannot be written",
                EXIT_UNEXPLAINED: "a trial was not measured or ran on other hardware or versions",
            }
        ),
    )
    add_run(parser)
    parser.add_argument("before", metavar="TRIAL_A", help="a trial's identifier, or its beginning")
    parser.add_argument("after", metavar="TRIAL_B", help="the trial to explain beside it")
    add_json(parser)
    parser.add_argument(
        "--picture", type=Path, metavar="FILE.png", help="also draw where time and memory went"
    )
    return parser


if __name__ == "__main__":
    finish(main)
