"""A trial's own process from within: it makes its CUDA context, waits for its trial, runs it, leaves its record."""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import signal
import struct
import sys
import time
from pathlib import Path
from typing import NoReturn

from jobs.record import record_to_json
from jobs.spec import TrialSpec, spec_from_json
from jobs.trackers.base import NOTHING, Held
from jobs.trackers.host import resident
from jobs.trial import run

RESULT, PHASE, LOG = "result.json", "phase", "log.txt"
"""What it leaves in its folder."""
PHASE_BYTES = 64
READY, DONE = struct.Struct("d?"), b"!"
"""What it says: when it was ready, and whether with all that it should have; and that its record is there."""
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def end_with(parent: int) -> None:
    """Let the kernel end this process when its parent goes, however it goes: no orphan may hold the GPU."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it went before the kernel was asked
        os._exit(1)


def be_forked(folder: Path, orders: int, news: int) -> NoReturn:
    """All that a forked process does: news of it go to ``news``, its trial comes by ``orders``."""
    status = 1
    try:
        with contextlib.suppress(PermissionError):
            os.setpgid(0, 0)
        log = os.open(folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        resident_bytes = _made_ready()
        os.write(news, READY.pack(time.monotonic(), resident_bytes is not None))
        with open(orders) as told:
            order = json.load(told)
        held = Held(order["context_bytes"], resident_bytes) if resident_bytes else NOTHING
        run_here(
            spec_from_json(order["spec"]), folder / RESULT, open_phase(folder / PHASE), "fork", held
        )
        sys.stdout.flush()
        sys.stderr.flush()
        os.write(news, DONE)
        status = 0
    except BaseException as error:
        import traceback

        traceback.print_exception(error)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # No interpreter shutdown: the kernel frees the GPU faster than the libraries' exit handlers would.
        os._exit(status)


def run_here(
    spec: TrialSpec, result: Path, phase: mmap.mmap | None, isolation: str, held: Held = NOTHING
) -> None:
    """Run a trial in this very process and leave its record in ``result``."""

    def announce(name: str) -> None:
        if phase is not None:
            phase[:] = name.encode()[:PHASE_BYTES].ljust(PHASE_BYTES, b"\0")

    record = run.run(spec, announce, isolation=isolation, scratch=result.parent, held=held)
    partial = result.with_suffix(".partial")
    partial.write_text(json.dumps(record_to_json(record)))
    partial.replace(result)


def open_phase(path: Path) -> mmap.mmap:
    """The shared page in which a child says where it is; it outlives the child."""
    with open(path, "r+b") as file:
        return mmap.mmap(file.fileno(), PHASE_BYTES)


def _made_ready() -> int | None:
    """Make the CUDA context; returns the host memory that it took, 0 where there is no GPU. None where it cannot be
    made yet, because what ends has not freed the memory: the trial makes it."""
    if (torch := sys.modules.get("torch")) is None or not torch.cuda.is_available():
        return 0
    before = resident()
    try:
        torch.cuda.init()
        torch.cuda.synchronize()
    except RuntimeError as error:
        print(f"no context ahead of the trial: {error}", flush=True)
        return None
    return max(1, resident() - before)
