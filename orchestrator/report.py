"""Write a run's tables and pages, also while it runs: --watch follows it to its end first."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator import cli
from orchestrator.storage.layout import REPORT_HTML
from orchestrator.storage.location import Uri, folder_of

if TYPE_CHECKING:
    from orchestrator.reporting.report import Report


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the tables and pages of a run. Returns the exit status."""
    parser = command_line()
    options = parser.parse_args(arguments)
    if options.watch and isinstance(options.run, Uri):
        parser.error("--watch follows a folder of this machine, not a URI")

    from orchestrator.storage.remote import RemoteError
    from orchestrator.storage.run_folder import RunFolderError
    from orchestrator.storage.run_metadata import UnreadableRunError
    from orchestrator.storage.tables.table_reader import FewerRowsError

    try:
        if isinstance(options.run, Uri):
            return _report_uri(options.run, options)
        return _report_folder(options.run, options)
    except FileNotFoundError as error:
        cli.print_nothing_there(options.run, "report on", error)
        return cli.EXIT_USAGE
    except UnreadableRunError as error:
        print(error, file=sys.stderr)
        return cli.EXIT_USAGE
    except (RunFolderError, RemoteError, FewerRowsError) as error:
        print(error, file=sys.stderr)
        return cli.EXIT_FAILURE
    except BrokenPipeError:
        raise  # the reader of stdout has left; this is not a failure of writing
    except OSError as error:
        print(f"{error.filename or options.run}: {error.strerror or error}", file=sys.stderr)
        return cli.EXIT_FAILURE


def command_line() -> argparse.ArgumentParser:
    parser = cli.verb_parser("report", __doc__, "the pages cannot be written")
    cli.add_run(parser, about="a run, finished or still running")
    watch = "follow a run on this machine until its sweep ends, then write its pages"
    parser.add_argument("--watch", action="store_true", help=watch)
    no_browser = "do not open report.html in a browser"
    parser.add_argument("--no-browser", action="store_true", help=no_browser)
    fewer = "write tables that lack rows of today's, which are moved to superseded/"
    parser.add_argument("--allow-fewer-rows", action="store_true", help=fewer)
    cli.add_json(parser)
    return parser


def _report_uri(uri: Uri, options: argparse.Namespace) -> int:
    from orchestrator.reporting.markdown import dataset_card
    from orchestrator.storage.remote import download, upload
    from orchestrator.storage.run_folder import RunFolder

    folder = folder_of(uri)
    with RunFolder(folder).locked():
        download(uri, folder)
        report = _publish(folder, options)
        upload(folder, uri, card=dataset_card(report, str(uri)))
    return _status(report)


def _report_folder(folder: Path, options: argparse.Namespace) -> int:
    from orchestrator.api import local_folder
    from orchestrator.storage.run_folder import RunFolder

    folder = local_folder(folder)
    if options.watch and RunFolder(folder).in_use():
        from orchestrator.running.watch import watch

        watch(folder, to_stderr=options.json)
    return _status(_publish(folder, options))


def _status(report: Report) -> int:
    return cli.EXIT_FAILURE if report.unwritten else cli.EXIT_OK


def _publish(folder: Path, options: argparse.Namespace) -> Report:
    from orchestrator.api.verbs import republished
    from orchestrator.reporting.terminal.summary import print_summary

    report = republished(folder, allow_fewer_rows=options.allow_fewer_rows)
    cli.print_notes(report.dataset.table.unreadable)
    print_summary(report, as_json=options.json)
    cli.print_notes(report.unwritten)
    if not (options.no_browser or options.json) and sys.stdout.isatty():
        import webbrowser

        webbrowser.open((folder / REPORT_HTML).resolve().as_uri())
    return report


if __name__ == "__main__":
    cli.finish(main)
