"""Runs one trial in this process, without Ray: ``python -m jobs FILE.json`` prints its record.

A trial of several ranks runs in a process for each, as in a sweep. A record from elsewhere runs its
own code only with ``--trust-remote-code`` or ``--allow-own-code``.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from jobs.node import environment
from jobs.node.processes import process_variables
from jobs.permissions import refusal
from jobs.record import TrialRecord
from jobs.spec import TrialSpec, from_json, to_json
from jobs.spec.limits import problem_of


def main() -> None:
    """Run the trial of a file; exit status 2 if it has none that may run, else 0."""
    parser = _command_line()
    options = parser.parse_args()
    try:
        spec = _read_spec(options.spec)
        _check(spec, options)
    except ValueError as error:
        parser.error(str(error))
    _run(spec, options.result, options.phase)


def _run(spec: TrialSpec, result: Path | None, phase_file: Path | None) -> None:
    """Run a trial, write or print its record, and end this process."""
    # What libraries read when they are loaded, unless the caller has set it.
    cpus = spec.needs.cpus or environment.cores()
    for name, value in process_variables(cpus, gpus=spec.world_size).items():
        os.environ.setdefault(name, value)
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not mix with the record

    from jobs.isolation import child_main

    phase = None if phase_file is None else child_main.open_phase(phase_file)
    status = 0
    # A rank of a trial, which is given both files, must not start ranks of its own.
    if spec.world_size > 1 and phase_file is None:
        text = json.dumps(to_json(_record_of_ranks(spec, cpus)))
        if result is None:
            replies.write(text + "\n")
        else:
            result.write_text(text)
    elif result is not None:
        status = child_main.run_and_record(spec, result, phase)
    else:
        with tempfile.TemporaryDirectory() as folder:
            written = Path(folder, child_main.RESULT)
            child_main.run_and_record(spec, written, phase)
            replies.write(written.read_text() + "\n")
    replies.flush()
    sys.stdout.flush()
    os._exit(status)  # the kernel frees the GPU faster than the exit handlers of libraries would


def _record_of_ranks(spec: TrialSpec, cpus: int) -> TrialRecord:
    """The record of all ranks. Raises SlotDiedError if their parent ends or hangs."""
    from jobs.isolation.slot import Slot

    with Slot(cpus) as slot:
        return slot.run(spec, spec.measure.timeout_seconds)


def _command_line() -> argparse.ArgumentParser:
    description = "Runs one trial in this process, without Ray, and prints its record."
    parser = argparse.ArgumentParser(prog="python -m jobs", description=description)
    spec_help = "a TrialSpec as JSON, or a record: its trial is run again"
    parser.add_argument("spec", type=Path, help=spec_help)
    parser.add_argument("--result", type=Path, help="write the record here instead of printing it")
    remote_help = "let the trial's checkpoint run its own code, if the file asks for that"
    parser.add_argument("--trust-remote-code", action="store_true", help=remote_help)
    own_help = "let the trial run the modules of your own that the file names"
    parser.add_argument("--allow-own-code", action="store_true", help=own_help)
    parser.add_argument("--phase", type=Path, help=argparse.SUPPRESS)
    return parser


def _read_spec(file: Path) -> TrialSpec:
    """The spec in a file, which holds the spec or a record. Raises ValueError for any other."""
    try:
        content = json.loads(file.read_text())
        return from_json(TrialSpec, content.get("spec", content))
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror}") from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{file} holds no trial of this version: {error!r}") from error


def _check(spec: TrialSpec, options: argparse.Namespace) -> None:
    """Raises ValueError for a trial that is not allowed to run, or that no library could run."""
    if problem := problem_of(spec) or refusal(spec):
        raise ValueError(problem)
    if spec.own_code is not None and not options.allow_own_code:
        names = ", ".join(map(repr, spec.own_code.names))
        runs = f"the trial would run code of these names: {names}"
        raise ValueError(f"{runs}; to allow that, give --allow-own-code")
    # transformers loads an implementation with a slash in its name from the Hub, and runs it.
    attention = str(spec.settings.model_kwargs.get("attn_implementation", ""))
    runs = f"attn_implementation {attention!r} would run code from the Hub"
    if spec.model.trust_remote_code:
        runs = "the trial's checkpoint would run its own code"
    if (spec.model.trust_remote_code or "/" in attention) and not options.trust_remote_code:
        raise ValueError(f"{runs}; to allow that, give --trust-remote-code")


if __name__ == "__main__":
    main()
