"""A trial's own process as its parent handles it: made, perhaps ahead of its trial, given it, waited for, ended."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from jobs.isolation.child_main import LOG, PHASE, PHASE_BYTES, READY, RESULT, be_forked, end_with
from jobs.spec import TrialSpec, to_json

_LOG_TAIL = 16_000


class Child:
    """It leads a process group of its own, and has a folder of its own, gone with it.

    One that is forked makes its CUDA context and waits for its trial::

        forked ─ context ─ ready ─ (waits) ─ begin ─ trial ─ result, done ─ end
    """

    def __init__(
        self, pid: int, folder: Path, orders: int | None = None, news: int | None = None
    ) -> None:
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
        with (
            contextlib.suppress(BrokenPipeError),
            open(self._orders, "w") as orders,
        ):  # its end will be seen
            self._orders = None
            json.dump({"spec": to_json(spec), "context_bytes": context_bytes}, orders)

    def wait(self, give_up: float, requests: int) -> bool:
        """Whether it had its result, or ended, by then. Exits where whoever asked has gone."""
        while self.lives and len(self._told) <= READY.size:
            if not self._hear(give_up, requests):
                return False
        return True

    def _hear(self, give_up: float, requests: int) -> bool:
        """Whether it said something or ended by then."""
        watched = [one for one in (self._end, requests, self._news) if one is not None]
        heard, _, _ = select.select(watched, [], [], max(0.0, give_up - time.monotonic()))
        if self._news is not None and self._news in heard:
            self._told += os.read(self._news, READY.size)
        elif (
            requests in heard
        ):  # a request is never sent while one runs: this is the end of the line
            self.kill()
            sys.exit(0)
        return bool(heard)

    @property
    def _ready(self) -> tuple[float, bool] | None:
        return READY.unpack(self._told[: READY.size]) if len(self._told) >= READY.size else None

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
        return (self._folder / LOG).read_text(errors="replace")[-_LOG_TAIL:]

    @property
    def phase(self) -> str:
        """Where it was last."""
        return (self._folder / PHASE).read_bytes().split(b"\0", 1)[0].decode()


def fork(folder: Path, channels: Sequence[int]) -> Child:
    """A child that waits for its trial. ``channels`` are descriptors of this process that are none of its business."""
    own, parent = _own_folder(folder), os.getpid()
    (orders, to_child), (from_child, news) = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        end_with(parent)
        for channel in (
            *channels,
            to_child,
            from_child,
        ):  # or who waits at the other end would not see it close
            os.close(channel)
        be_forked(own, orders, news)
    os.close(orders)
    os.close(news)
    with contextlib.suppress(
        PermissionError, ProcessLookupError
    ):  # whoever is first; the other finds it done
        os.setpgid(pid, pid)
    return Child(pid, own, to_child, from_child)


def spawn(spec: TrialSpec, folder: Path) -> Child:
    """A fresh interpreter, with its trial."""
    own = _own_folder(folder)
    (own / "spec.json").write_text(json.dumps(to_json(spec)))
    command = [sys.executable, "-m", "jobs", str(own / "spec.json"), "--result", str(own / RESULT)]
    with open(own / LOG, "w") as log:
        process = subprocess.Popen(
            [*command, "--phase", str(own / PHASE)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            process_group=0,
            preexec_fn=functools.partial(end_with, os.getpid()),
        )
    process.returncode = 0  # it is reaped here
    return Child(process.pid, own)


def _own_folder(folder: Path) -> Path:
    own = Path(tempfile.mkdtemp(prefix="child-", dir=folder))
    (own / PHASE).write_bytes(bytes(PHASE_BYTES))
    (own / LOG).touch()
    return own
