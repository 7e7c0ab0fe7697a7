"""Render a run's tables and pages anew, also while it runs: --watch follows it to its end first."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from orchestrator import cli
from orchestrator.storage.location import Location, folder_of
from orchestrator.storage.run_folder import RunFolder, RunFolderError


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 1 the pages cannot be written, 2 when RUN holds nothing to report."""
    parser = command_line()
    options = parser.parse_args(arguments)
    if options.watch and not isinstance(options.run, Path):
        parser.error("--watch follows a folder of this machine; at a URI, render it again")

    from orchestrator.storage.object_store import StoreError
    from orchestrator.storage.run_metadata import UnreadableRunError

    try:
        with _at_hand(options.run) as folder:
            return _report(folder, options)
    except FileNotFoundError as error:
        print(f"{options.run}: no records and no table to report on ({error})", file=sys.stderr)
        return cli.EXIT_USAGE
    except UnreadableRunError as error:
        print(error, file=sys.stderr)
        return cli.EXIT_USAGE
    except (RunFolderError, StoreError) as error:
        print(error, file=sys.stderr)
        return cli.EXIT_FAILURE
    except BrokenPipeError:
        raise  # nobody reads the summary: no failure of the pages
    except OSError as error:
        print(f"{error.filename or options.run}: {error.strerror or error}", file=sys.stderr)
        return cli.EXIT_FAILURE


def command_line() -> argparse.ArgumentParser:
    """What the verb takes."""
    parser = argparse.ArgumentParser(
        prog="python -m orchestrator.report",
        description=__doc__,
        epilog=cli.epilog({cli.EXIT_FAILURE: "the pages cannot be written"}),
    )
    cli.add_run(parser, about="a run, finished or still running")
    watch = "follow a run on this machine until its sweep ends, then render it"
    parser.add_argument("--watch", action="store_true", help=watch)
    parser.add_argument(
        "--open-nothing", action="store_true", help="do not show report.html in a browser"
    )
    cli.add_json(parser)
    return parser


@contextlib.contextmanager
def _at_hand(run: Location) -> Iterator[Path]:
    """The run's folder; what lies at a URI is brought to this machine and, with its new pages, sent back."""
    if isinstance(run, Path):
        yield run
        return
    from orchestrator.storage.mirror import Mirror
    from orchestrator.storage.object_store import open_store

    folder = folder_of(run)
    with RunFolder(folder).locked():
        mirror = Mirror(folder, open_store(run))
        mirror.bring()
        yield folder
        mirror.send()


def _report(folder: Path, options: argparse.Namespace) -> int:
    from orchestrator.reporting.publish import publish
    from orchestrator.reporting.terminal import print_summary

    if options.watch and RunFolder(folder).in_use():
        from orchestrator.running.follow import follow

        follow(folder, to_stderr=options.json)
    summary = publish(folder)
    print_summary(summary, as_json=options.json)
    if not (options.open_nothing or options.json) and sys.stdout.isatty():
        import webbrowser

        webbrowser.open((folder / "report.html").resolve().as_uri())
    return cli.EXIT_OK


if __name__ == "__main__":
    cli.finish(main)
