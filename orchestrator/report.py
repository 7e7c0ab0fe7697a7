"""Render a run's tables and pages anew."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from orchestrator.running.command import EXIT_FAILURE, EXIT_OK, EXIT_USAGE, add_json, epilog, finish


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 1 the pages cannot be written, 2 when RUN holds nothing to report."""
    parser = argparse.ArgumentParser(
        prog="python -m orchestrator.report",
        description=__doc__,
        epilog=epilog({EXIT_FAILURE: "the pages cannot be written"}),
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="a run's folder, finished or still running")
    parser.add_argument("--open-nothing", action="store_true", help="do not show report.html in a browser")
    add_json(parser)
    options = parser.parse_args(arguments)

    from orchestrator.results import publish
    from orchestrator.results.page.text import print_summary
    from orchestrator.results.run import UnreadableRunError

    try:
        summary = publish(options.run)
    except FileNotFoundError as error:
        print(f"{options.run}: no records and no table to report on ({error})", file=sys.stderr)
        return EXIT_USAGE
    except UnreadableRunError as error:
        print(error, file=sys.stderr)
        return EXIT_USAGE
    except OSError as error:
        print(f"{error.filename or options.run}: {error.strerror or error}", file=sys.stderr)
        return EXIT_FAILURE
    print_summary(summary, as_json=options.json)
    if not (options.open_nothing or options.json) and sys.stdout.isatty():
        import webbrowser

        webbrowser.open((options.run / "report.html").resolve().as_uri())
    return EXIT_OK


if __name__ == "__main__":
    finish(main)
