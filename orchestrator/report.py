"""Render a run's tables and pages anew: ``python -m orchestrator.report RUN``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, or 2 when RUN holds nothing to report."""
    parser = argparse.ArgumentParser(prog="orchestrator.report", description=__doc__)
    parser.add_argument("run", type=Path, metavar="RUN", help="a run's folder, finished or still running")
    parser.add_argument("--open-nothing", action="store_true", help="do not show report.html in a browser")
    options = parser.parse_args(arguments)

    from orchestrator.results import publish
    from orchestrator.results.page.text import print_summary

    try:
        summary = publish(options.run)
    except FileNotFoundError as error:
        print(f"{options.run}: no records and no table to report on ({error})", file=sys.stderr)
        return 2
    print_summary(summary)
    if not options.open_nothing and sys.stdout.isatty():
        import webbrowser

        webbrowser.open((options.run / "report.html").resolve().as_uri())
    return 0


if __name__ == "__main__":
    sys.exit(main())
