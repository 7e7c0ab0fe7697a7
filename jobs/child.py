"""A trial's own process as its parent handles it: made, perhaps ahead of its trial, given it, waited for, ended."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import mmap
import os
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from jobs import trial
from jobs.record import record_to_json
from jobs.spec import TrialSpec, spec_from_json, to_json
from jobs.trackers.base import NOTHING, Held
from jobs.trackers.host import resident

RESULT = "result.json"
_PHASE_BYTES = 64
_LOG_TAIL = 16_000
_READY, _DONE = struct.Struct("d?"), b"!"
"""When it was ready, and whether with all that it should have."""
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


class Child:
    """It leads a process group of its own, and has a folder of its own, gone with it.

    One that is forked makes its CUDA context and waits for its trial::

        forked ─ context ─ ready ─ (waits) ─ begin ─ trial ─ result, done ─ end
    """

    def __init__(self, pid: int, folder: Path, orders: int | None = None, news: int | None = None) -> None:
        self.pid, self._folder = pid, folder
        self._orders, self._news = orders, news
        self._end = os.pidfd_open(pid)
        self._made_at = self._begun_at = time.monotonic()
        self._told = b""

    @property
    def lives(self) -> bool:
        """Whether it has not ended."""
        return not select.select([self._end], [], [], 0)[0]

    def is_ready(self, give_up: float, requests: int) -> bool:
        """Whether it has its context, if it needs one, by then. Exits where whoever asked has gone."""
        while self._ready is None and self.lives and self._hear(give_up, requests):
            pass
        return self._ready is not None and self._ready[1]

    def begin(self, spec: TrialSpec, context_bytes: int) -> None:
        """Give a forked one its trial, and tell it what its context took of the GPU."""
        self._begun_at = time.monotonic()
        if self._orders is None:
            return
        with contextlib.suppress(BrokenPipeError), open(self._orders, "w") as orders:  # its end will be seen
            self._orders = None
            json.dump({"spec": to_json(spec), "context_bytes": context_bytes}, orders)

    def wait(self, give_up: float, requests: int) -> bool:
        """Whether it had its result, or ended, by then. Exits where whoever asked has gone."""
        while self.lives and len(self._told) <= _READY.size:
            if not self._hear(give_up, requests):
                return False
        return True

    def _hear(self, give_up: float, requests: int) -> bool:
        """Whether it said something or ended by then."""
        watched = [one for one in (self._end, requests, self._news) if one is not None]
        heard, _, _ = select.select(watched, [], [], max(0.0, give_up - time.monotonic()))
        if self._news is not None and self._news in heard:
            self._told += os.read(self._news, _READY.size)
        elif requests in heard:  # a request is never sent while one runs: this is the end of the line
            self.kill()
            sys.exit(0)
        return bool(heard)

    @property
    def _ready(self) -> tuple[float, bool] | None:
        return _READY.unpack(self._told[: _READY.size]) if len(self._told) >= _READY.size else None

    @property
    def busy_seconds(self) -> float:
        """Since it was made, less what it waited for its trial with nothing to do."""
        ready_at = self._made_at if self._ready is None else self._ready[0]
        return time.monotonic() - self._made_at - max(0.0, self._begun_at - ready_at)

    def kill(self) -> None:
        """End it, with all its processes. What they hold is theirs until ``reap``."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def reap(self) -> int:
        """Wait for its end, remove what it left, a killed one's scratch included; returns its exit status."""
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        for descriptor in (self._end, self._orders, self._news):
            if descriptor is not None:
                os.close(descriptor)
        shutil.rmtree(self._folder, ignore_errors=True)
        return status

    @property
    def result(self) -> Path:
        """The record it left, if it did."""
        return self._folder / RESULT

    @property
    def log(self) -> str:
        """The end of what it printed."""
        return (self._folder / "log.txt").read_text(errors="replace")[-_LOG_TAIL:]

    @property
    def phase(self) -> str:
        """Where it was last."""
        return (self._folder / "phase").read_bytes().split(b"\0", 1)[0].decode()


def fork(folder: Path, channels: Sequence[int]) -> Child:
    """A child that waits for its trial. ``channels`` are descriptors of this process that are none of its business."""
    own, parent = _own_folder(folder), os.getpid()
    (orders, to_child), (from_child, news) = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        end_with(parent)
        for channel in (*channels, to_child, from_child):  # or who waits at the other end would not see it close
            os.close(channel)
        _be_a_child(own, orders, news)
    os.close(orders)
    os.close(news)
    with contextlib.suppress(PermissionError, ProcessLookupError):  # whoever is first; the other finds it done
        os.setpgid(pid, pid)
    return Child(pid, own, to_child, from_child)


def spawn(spec: TrialSpec, folder: Path) -> Child:
    """A fresh interpreter, with its trial."""
    own = _own_folder(folder)
    (own / "spec.json").write_text(json.dumps(to_json(spec)))
    command = [sys.executable, "-m", "jobs", str(own / "spec.json"), "--result", str(own / RESULT)]
    with open(own / "log.txt", "w") as log:
        process = subprocess.Popen(
            [*command, "--phase", str(own / "phase")],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            process_group=0,
            preexec_fn=functools.partial(end_with, os.getpid()),
        )
    process.returncode = 0  # it is reaped here
    return Child(process.pid, own)


def run_here(spec: TrialSpec, result: Path, phase: mmap.mmap | None, isolation: str, held: Held = NOTHING) -> None:
    """Run a trial in this very process and leave its record in ``result``."""

    def announce(name: str) -> None:
        if phase is not None:
            phase[:] = name.encode()[:_PHASE_BYTES].ljust(_PHASE_BYTES, b"\0")

    record = trial.run(spec, announce, isolation=isolation, scratch=result.parent, held=held)
    partial = result.with_suffix(".partial")
    partial.write_text(json.dumps(record_to_json(record)))
    partial.replace(result)


def open_phase(path: Path) -> mmap.mmap:
    """The shared page in which a child says where it is; it outlives the child."""
    with open(path, "r+b") as file:
        return mmap.mmap(file.fileno(), _PHASE_BYTES)


def _own_folder(folder: Path) -> Path:
    own = Path(tempfile.mkdtemp(prefix="child-", dir=folder))
    (own / "phase").write_bytes(bytes(_PHASE_BYTES))
    (own / "log.txt").touch()
    return own


def end_with(parent: int) -> None:
    """Let the kernel end this process when its parent goes, however it goes: no orphan may hold the GPU."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it went before the kernel was asked
        os._exit(1)


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


def _be_a_child(folder: Path, orders: int, news: int) -> NoReturn:
    status = 1
    try:
        with contextlib.suppress(PermissionError):
            os.setpgid(0, 0)
        log = os.open(folder / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        resident_bytes = _made_ready()
        os.write(news, _READY.pack(time.monotonic(), resident_bytes is not None))
        with open(orders) as told:
            order = json.load(told)
        held = Held(order["context_bytes"], resident_bytes) if resident_bytes else NOTHING
        run_here(spec_from_json(order["spec"]), folder / RESULT, open_phase(folder / "phase"), "fork", held)
        sys.stdout.flush()
        sys.stderr.flush()
        os.write(news, _DONE)
        status = 0
    except BaseException as error:
        import traceback

        traceback.print_exception(error)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # No interpreter shutdown: the kernel frees the GPU faster than the libraries' exit handlers would.
        os._exit(status)
