"""Habits of the command line: what a verb that measures takes, its hold on the run folder, and how every verb ends."""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import select
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NoReturn

from orchestrator.planning.loggers import TrackerError
from orchestrator.running.nodes import ClusterError, NoSuchGpuError
from orchestrator.storage.location import Location, folder_of, location
from orchestrator.storage.run_folder import RunFolder, RunFolderError
from orchestrator.storage.run_metadata import UnreadableRunError
from orchestrator.units import duration_seconds, size_bytes

VERBS = (
    "sweep",
    "batch_size",
    "predict",
    "recommend",
    "explain",
    "compare",
    "report",
    "doctor",
    "completion",
)
"""Every verb is a module of this package with a ``main`` and a ``command_line``."""

EXIT_OK, EXIT_FAILURE, EXIT_USAGE, EXIT_INTERRUPTED, EXIT_UNHEARD = 0, 1, 2, 130, 141
STATUSES: Mapping[int, str] = {
    EXIT_OK: "done",
    EXIT_USAGE: "wrong call or configuration",
    EXIT_INTERRUPTED: "interrupted",
    EXIT_UNHEARD: "nobody reads the output",
}
"""What exit statuses mean for every verb; each adds what its own are."""
_NOT_OURS_TO_MEND = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EACCES,
    errno.EISDIR,
    errno.ENOTDIR,
)
"""What a disk answers when it is full, not to be written, or has something else in a file's place."""


def finish(main: Callable[[], int]) -> NoReturn:
    """End the process with ``main``'s exit status: without a word at Ctrl-C, or where nobody listens (``| head``)."""
    try:
        try:
            status = main()
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        status = EXIT_INTERRUPTED
    except BrokenPipeError:
        if not _is_unheard():
            raise  # another pipe's
        _say_no_more()
        status = EXIT_UNHEARD
    except OSError as error:
        if error.errno not in _NOT_OURS_TO_MEND:
            raise
        print(f"{error.filename or 'cannot write'}: {error.strerror}", file=sys.stderr)
        _say_no_more()
        status = EXIT_FAILURE
    sys.exit(status)


def epilog(own: Mapping[int, str]) -> str:
    """What a verb's help ends with: its exit statuses, ``own`` and every verb's."""
    listed = ", ".join(
        f"{status} {meaning}" for status, meaning in sorted({**STATUSES, **own}.items())
    )
    return f"Exit status: {listed}."


def _say_no_more() -> None:
    """Python flushes stdout once more at its end, and would complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_unheard() -> bool:
    """Whether stdout is a pipe that nobody reads any more."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def add_config(parser: argparse.ArgumentParser) -> None:
    """The config, and whether its model may bring code."""
    parser.add_argument("config", type=Path, help="the sweep's YAML file")
    remote = "let the checkpoint run its own code; the config must ask for it too"
    parser.add_argument("--trust-remote-code", action="store_true", help=remote)


def add_json(parser: argparse.ArgumentParser, what: str = "print JSON instead of text") -> None:
    """The switch of every verb that prints a table."""
    parser.add_argument("--json", action="store_true", help=what)


def add_options(parser: argparse.ArgumentParser, *, output: str) -> None:
    """The config, where to write, how long, what to repeat and on which cluster; ``output`` is the folder's default."""
    add_config(parser)
    folder = f"run folder, or a URI to publish it to such as s3://BUCKET/NAME (default: {output})"
    parser.add_argument("--output", type=run_location, metavar="DIR", help=folder)
    parser.add_argument("--dry-run", action="store_true", help="print the plan and stop")
    parser.add_argument(
        "--time-budget",
        type=duration,
        metavar="15m",
        help="end in this time; the rest is recorded as skipped",
    )
    parser.add_argument(
        "--resume", action="store_true", help="continue a run: repeat nothing that has finished"
    )
    parser.add_argument(
        "--fresh", action="store_true", help="measure everything anew, also what has been measured"
    )
    add_json(parser, "print JSON instead of text, and progress to stderr")
    parser.add_argument(
        "--address", help="a Ray cluster's address (default: RAY_ADDRESS, else this machine)"
    )


def add_run(
    parser: argparse.ArgumentParser, name: str = "run", metavar: str = "RUN", about: str = "a run"
) -> None:
    """A run to read."""
    parser.add_argument(
        name, type=run_location, metavar=metavar, help=f"{about}: its folder or its URI"
    )


def holding(
    place: Location,
    run: Callable[[RunFolder], int],
    *,
    resume: bool,
    render: Callable[[Path], object] | None = None,
) -> int:
    """The exit status of ``run``, which has the run's folder to itself; or why it could not begin.

    Where the place is a URI, ``render`` writes the folder's pages anew for those who look at it in mid-run.
    """
    folder = RunFolder(folder_of(place))
    if resume and isinstance(place, Path) and not folder.exists():
        return _nothing_to_resume(place)
    try:
        with folder.locked(), _published(place, folder, render):
            return _nothing_to_resume(place) if resume and not folder.exists() else run(folder)
    except (
        ClusterError,
        NoSuchGpuError,
        RunFolderError,
        TrackerError,
        UnreadableRunError,
    ) as error:
        print(error, file=sys.stderr)
        return EXIT_FAILURE


def _nothing_to_resume(place: Location) -> int:
    print(f"{place}: no run to resume", file=sys.stderr)
    return EXIT_USAGE


@contextlib.contextmanager
def _published(
    place: Location, folder: RunFolder, render: Callable[[Path], object] | None
) -> Iterator[None]:
    """Raises RunFolderError where a URI is the place and cannot be used."""
    if isinstance(place, Path):
        yield
        return
    from orchestrator.storage.mirror import published
    from orchestrator.storage.object_store import StoreError

    try:
        with published(place, folder.path, render):
            yield
    except StoreError as error:
        raise RunFolderError(str(error)) from None


def run_location(text: str) -> Location:
    """An argument that is a run's folder or URI."""
    try:
        return location(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def duration(text: str) -> float:
    """An argument such as 15m, in seconds."""
    try:
        return duration_seconds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def count(text: str) -> int:
    """An argument that is an integer from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be an integer from 1, not {text}")
    return int(text)


def share(text: str) -> float:
    """An argument such as 2% or 0.02."""
    with contextlib.suppress(ValueError):
        found = float(text[:-1]) / 100 if text.endswith("%") else float(text)
        if 0 <= found < 1:
            return found
    raise argparse.ArgumentTypeError(f"must be a share below 1 such as 2% or 0.02, not {text}")


def margin(text: str) -> float:
    """An argument such as 5%, as a share below 1, or 4GiB, as bytes."""
    with contextlib.suppress(ValueError):
        return float(size_bytes(text))
    try:
        return share(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(
            f"must be a share or a size such as 5% or 4GiB, not {text}"
        ) from None
