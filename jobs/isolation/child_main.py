"""A trial's own process, from within: create a CUDA context, wait for the trial, run it."""

import contextlib
import itertools
import json
import mmap
import os
import signal
import socket
import struct
import sys
import time
import traceback
from pathlib import Path
from typing import NoReturn

from jobs.errors import TimeUpError
from jobs.spec import TrialSpec, from_json, to_json
from jobs.trial.run import run

RESULT, PHASE_FILE, LOG = "result.json", "phase", "log.txt"
"""The files in the child's folder: its record, the trial's phase, and what the trial printed."""
PHASE = struct.Struct("56sQ")
"""What the file of the phase holds: its name, and how often the trial has announced one."""
READY = struct.Struct("d?")
"""The child's first message: when it was ready (monotonic seconds), and if it has a context."""
STARTED = b"s"  # its second message: it has received its trial, and begins to run it
DONE = b"!"  # its last message: its record is written
UNWRITABLE = os.EX_CANTCREAT
"""Exit status of a child that could not write its files."""


def run_as_forked_child(folder: Path, parent: socket.socket) -> NoReturn:
    """A forked child's life: it gets its trial, and reports READY, STARTED and DONE."""
    status = 1
    try:
        with contextlib.suppress(PermissionError):
            os.setpgid(0, 0)
        log = os.open(folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        # Ahead of the trial, so that the trial does not wait for its context.
        has_context = _create_context()
        parent.sendall(READY.pack(time.monotonic(), has_context))
        with parent.makefile() as messages:
            request = json.load(messages)  # waits for the trial
        spec = from_json(TrialSpec, request["spec"])
        os.environ.update(request["variables"])
        context_bytes = request["context_bytes"] if has_context else 0
        parent.sendall(STARTED)
        status = run_and_record(
            spec, folder / RESULT, open_phase(folder / PHASE_FILE), context_bytes
        )
        _flush()
        if status == 0:  # otherwise the parent waits for the exit status
            parent.sendall(DONE)
    except BaseException as error:
        # On a full disk not even the traceback can be written.
        with contextlib.suppress(OSError):
            traceback.print_exception(error)
    finally:
        # This process must not return into its parent's code. No interpreter shutdown, because the
        # kernel frees the GPU faster than the libraries' exit handlers would.
        try:
            _flush()
        finally:
            os._exit(status)


def run_and_record(
    spec: TrialSpec, result: Path, phase: mmap.mmap | None, context_bytes: int = 0
) -> int:
    """Run a trial and write its record; returns the exit status: 0, or ``UNWRITABLE``."""

    counter = itertools.count(1)

    def announce(name: str) -> None:
        if phase is not None:
            phase[:] = PHASE.pack(name.encode(), next(counter))

    if phase is not None:  # then a slot may ask it to end
        answer_when_time_is_up()
    record = run(spec, announce, scratch=result.parent, context_bytes=context_bytes)
    partial = result.with_suffix(".partial")
    try:
        partial.write_text(json.dumps(to_json(record)))
        partial.replace(result)  # so that the parent never reads half a record
    except OSError as error:
        with contextlib.suppress(OSError):
            print(f"the record could not be written: {error}", flush=True)
        return UNWRITABLE
    return 0


def answer_when_time_is_up() -> None:
    """Raise TimeUpError at SIGTERM. Processes that are forked from this one end at once."""

    def end(*_: object) -> NoReturn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise TimeUpError

    signal.signal(signal.SIGTERM, end)
    os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))


def open_phase(path: Path) -> mmap.mmap:
    """Memory that is backed by a file: a phase that is written there outlives its process."""
    with open(path, "r+b") as file:
        return mmap.mmap(file.fileno(), PHASE.size)


def _flush() -> None:
    """Write what is still buffered, as far as the disk takes it."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()


def _create_context() -> bool:
    """Whether there is a context, or no GPU; False while the last child's memory is not free."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return True
    try:
        torch.cuda.init()
        torch.cuda.synchronize()
    except RuntimeError as error:
        print(f"no context ahead of the trial: {error}", flush=True)
        return False
    return True
