"""What the command lines of all verbs share: options, notes, exit statuses."""

from __future__ import annotations

import argparse
import errno
import json
import os
import re
import select
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Protocol

from orchestrator.argument_types import count, duration, run_location
from orchestrator.reporting.terminal.safe_text import safe_streams
from orchestrator.storage.location import Location

if TYPE_CHECKING:
    from orchestrator.api import Run
    from orchestrator.planning.settings import SweepConfig
    from orchestrator.running.early_start import Start
    from orchestrator.running.options import VerbOptions

VERBS = (
    "sweep",
    "tune",
    "batch_size",
    "predict",
    "recommend",
    "explain",
    "compare",
    "report",
    "doctor",
    "init",
    "completion",
)
"""Every verb is a module of this package with a ``main`` and a ``command_line``."""

EXIT_OK = os.EX_OK
EXIT_FAILURE = 1
EXIT_USAGE = 2
# A shell reports a process that a signal ended as 128 and the signal's number.
EXIT_INTERRUPTED = 128 + signal.SIGINT
EXIT_BROKEN_PIPE = 128 + signal.SIGPIPE
STATUSES: Mapping[int, str] = {
    EXIT_OK: "done",
    EXIT_USAGE: "wrong call or configuration",
    EXIT_INTERRUPTED: "interrupted",
    EXIT_BROKEN_PIPE: "broken pipe",
}
"""Exit statuses that mean the same for every verb."""
_CANNOT_WRITE = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EACCES,
    errno.EISDIR,
    errno.ENOTDIR,
    errno.ENAMETOOLONG,
    errno.ELOOP,
    errno.EIO,
    errno.ESTALE,
)
"""Errors of writing that the user can remedy. For example, the disk is full or read-only, something
else has the file's name, or the name is too long."""


def finish(main: Callable[[], int]) -> NoReturn:
    """Run ``main`` and end the process with its exit status. Ctrl-C, SIGTERM, a closed terminal and
    a closed output pipe end it without a traceback. Control characters in the output are made
    visible, because names and reasons in a run may come from a stranger."""
    for interruption in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(interruption) is signal.SIG_DFL:
            signal.signal(interruption, signal.default_int_handler)
    try:
        try:
            with safe_streams():
                status = main()
        finally:
            # Flush here, so that an error of writing is caught below. Python's own flush is later.
            sys.stdout.flush()
    except KeyboardInterrupt:
        status = EXIT_INTERRUPTED
    except BrokenPipeError:
        # A closed pipe is fine only if it is that of our own output.
        if not _is_stdout_closed():
            raise  # another pipe is broken, which is an error
        _discard_stdout()
        status = EXIT_BROKEN_PIPE
    except OSError as error:
        if error.errno not in _CANNOT_WRITE:
            raise
        # The user can remove the cause, so a sentence helps more than a traceback.
        print(f"{error.filename or 'cannot write'}: {error.strerror}", file=sys.stderr)
        _discard_stdout()
        status = EXIT_FAILURE
    sys.exit(status)


def _discard_stdout() -> None:
    """Send the rest of stdout to /dev/null. Python flushes stdout once more when it ends, and would
    otherwise print an error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_stdout_closed() -> bool:
    # A closed pipe reports an error at once, without any wait.
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def epilog(statuses: Mapping[int, str]) -> str:
    """The end of a verb's help: its own exit statuses, and those that all verbs share."""
    meanings = {**STATUSES, **statuses}
    listed = [f"{status} {meanings[status]}" for status in sorted(meanings)]
    return f"Exit status: {', '.join(listed)}."


class MeasuringVerb(Protocol):
    """What a verb measures: a checked configuration with the verb's options."""

    def show_plan(self) -> int:
        """Print the plan. Returns the exit status."""

    def run(self, start: Start) -> int:
        """Measure in the locked run folder, and print the result. Returns the exit status."""


def measured(
    options: VerbOptions, make: Callable[[SweepConfig], MeasuringVerb], *, suffix: str = ""
) -> int:
    """Plan or measure what ``make`` makes of the configuration. Returns the exit status. A wrong
    configuration ends the verb before Ray or a GPU is touched. ``suffix`` ends the name of the run
    folder, unless the options name the folder."""
    from orchestrator.planning.keys.loggers import LoggerError
    from orchestrator.planning.problems import ConfigError
    from orchestrator.running.early_start import checked_config, early_start

    try:
        config = checked_config(options, print_note)
        measurement = make(config)
        if options.dry_run:
            return measurement.show_plan()
    except (ConfigError, LoggerError, ValueError) as error:
        print(error, file=sys.stderr)
        return EXIT_USAGE
    # Not before: a dry run needs none of it.
    from orchestrator.running.nodes import ClusterError, NoSuchGpuError
    from orchestrator.running.run_lock import NothingToResumeError
    from orchestrator.storage.run_folder import RunFolderError
    from orchestrator.storage.run_metadata import UnreadableRunError

    failures = (ClusterError, NoSuchGpuError, RunFolderError, LoggerError, UnreadableRunError)
    try:
        with early_start(config, options, suffix, print_note) as start:
            return measurement.run(start)
    except (FileExistsError, NothingToResumeError, ConfigError) as error:
        print(error, file=sys.stderr)
        return EXIT_USAGE
    except failures as error:
        print(error, file=sys.stderr)
        return EXIT_FAILURE


def print_notes(notes: Iterable[str]) -> None:
    for note in notes:
        print_note(note)


def loaded(run: Location, purpose: str) -> Run | None:
    """A run, with a note on stderr for records that cannot be read. None if there is nothing to do
    ``purpose`` to, after a sentence on stderr."""
    from orchestrator.api import load
    from orchestrator.storage.run_metadata import UnreadableRunError

    try:
        result = load(run)
    except FileNotFoundError as error:
        print_nothing_there(run, purpose, error)
        return None
    except (OSError, UnreadableRunError) as error:
        print(error, file=sys.stderr)
        return None
    print_notes(result.dataset.table.unreadable)
    return result


def print_nothing_there(run: Location, purpose: str, error: FileNotFoundError) -> None:
    """Say on stderr why there is nothing to do ``purpose`` to: no such folder, or an empty one."""
    is_there = not isinstance(run, Path) or run.is_dir()
    empty = f"{run}: no records and no table to {purpose} ({error})"
    print(empty if is_there else error, file=sys.stderr)


def print_note(note: str) -> None:
    print(f"note: {note}", file=sys.stderr, flush=True)


def print_json(document: object) -> None:
    """Print a document of plain JSON values on stdout."""
    print(json.dumps(document, indent=2))


class _Parser(argparse.ArgumentParser):
    """A parser that answers a mistake with one line, which names what may be meant."""

    def error(self, message: str) -> NoReturn:
        from orchestrator.planning.problems import guess_after

        what, _, given = message.partition(": ")
        if what == "unrecognized arguments":
            word = given.split()[0]
            what = "no option" if word.startswith("-") else "nothing is expected at"
            message = f"{what} {word}{guess_after(word, self._option_string_actions)}"
        elif found := re.search(r"invalid choice: '(.*)' \(choose from (.*)\)", message):
            message += guess_after(found[1], re.findall(r"'([^']+)'", found[2]))
        self.exit(EXIT_USAGE, f"{self.prog}: {message} (--help lists the options)\n")


def verb_parser(
    verb: str, about: str | None, failure: str = "", others: Mapping[int, str] | None = None
) -> argparse.ArgumentParser:
    """A parser for a verb, whose help ends with the exit statuses: when it fails, and others."""
    own = {EXIT_FAILURE: failure} if failure else {}
    prog = f"python -m orchestrator.{verb}"
    return _Parser(prog=prog, description=about, epilog=epilog({**own, **(others or {})}))


def add_config(parser: argparse.ArgumentParser) -> None:
    """Add the config file, choices in place of its own, and the switches that let it run code: a
    checkpoint's, the user's."""
    parser.add_argument("config", type=Path, help="the sweep's YAML file")
    choose = "a value in place of the file's, as precision=bf16; once for each axis"
    parser.add_argument(
        "--set", dest="choices", action="append", default=[], metavar="AXIS=VALUE", help=choose
    )
    remote = "let the checkpoint run its own code; the config must ask for it, too"
    parser.add_argument("--trust-remote-code", action="store_true", help=remote)
    own = "run the modules of your own that the config names under own_code"
    parser.add_argument("--allow-own-code", action="store_true", help=own)


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def add_options(parser: argparse.ArgumentParser, *, output: str) -> None:
    """Add the options of a verb that measures: the fields of ``VerbOptions``. ``output`` says in
    the help text what the default run folder is."""
    add_config(parser)
    add = parser.add_argument
    folder = f"run folder, or a URI to publish it to such as s3://BUCKET/NAME (default: {output})"
    add("--output", type=run_location, metavar="DIR", help=folder)
    add_force(parser)
    gpus = "GPUs of one node for each trial (default: resources.gpus_per_trial)"
    add("--gpus", type=count, metavar="N", help=gpus)
    add("--dry-run", action="store_true", help="print the plan and stop")
    budget = "end in this time; trials that have not started by then are recorded as skipped"
    dest = "time_budget_seconds"
    add("--time-budget", dest=dest, type=duration, metavar="15m", help=budget)
    earlier = parser.add_mutually_exclusive_group()
    resume = "continue a run: repeat nothing that has finished"
    earlier.add_argument("--resume", action="store_true", help=resume)
    earlier.add_argument("--fresh", action="store_true", help="measure everything again")
    as_json = "print JSON instead of text, and progress to stderr"
    add("--json", dest="as_json", action="store_true", help=as_json)
    add("--address", help="a Ray cluster's address (default: RAY_ADDRESS, else this machine)")


def add_run(
    parser: argparse.ArgumentParser, name: str = "run", metavar: str = "RUN", about: str = "a run"
) -> None:
    """Add a positional argument for a run, as a folder or a URI."""
    what = f"{about}: its folder or its URI"
    parser.add_argument(name, type=run_location, metavar=metavar, help=what)


def add_force(parser: argparse.ArgumentParser) -> None:
    """Add ``--force``, for a verb that writes where the user says."""
    force = "write over files of the same names, and into a folder that holds other files"
    parser.add_argument("--force", action="store_true", help=force)
