"""A trial's own process, from its parent's side: start it, give it its trial, wait, end it."""

import contextlib
import functools
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jobs import self_process
from jobs.isolation import child_main
from jobs.isolation.channel import HEARTBEAT_SECONDS, beat
from jobs.node.processes import end_with_parent
from jobs.spec import TrialSpec, to_json


class Child:
    """A process that leads its own process group and has its own folder, which is removed with it::

    forked ─ context ─ ready ─ (waits) ─ begin ─ trial ─ result, done ─ end
    """

    def __init__(self, pid: int, folder: Path, connection: socket.socket | None = None) -> None:
        self.pid = pid
        self._folder = folder
        self._connection = connection
        """Its messages; None for a process that was started with its trial."""
        self._pidfd = os.pidfd_open(pid)
        self._made_at = time.monotonic()
        self._begun_at = self._made_at
        self._status = b""  # what the child has said so far

    @property
    def is_alive(self) -> bool:
        return not select.select([self._pidfd], [], [], 0)[0]

    def is_ready(self, deadline: float, owner: socket.socket) -> bool:
        """Wait until it is ready; returns whether it has a context, or needs none."""
        self._wait(lambda: self._ready is not None, deadline, owner)
        return self._ready is not None and self._ready[1]

    def begin(self, spec: TrialSpec, context_bytes: int) -> None:
        """Give a forked child its trial, and the GPU memory that its context took."""
        self._begun_at = time.monotonic()
        if self._connection is not None:
            request = {"spec": to_json(spec), "context_bytes": context_bytes}
            with contextlib.suppress(OSError):  # the child has ended
                self._connection.sendall(json.dumps(request).encode())
                self._connection.shutdown(socket.SHUT_WR)

    def wait(self, deadline: float, owner: socket.socket) -> bool:
        """Wait for its result or its end; False at ``deadline`` (monotonic seconds)."""
        said = child_main.READY.size  # where what it says of its trial begins
        return self._wait(lambda: self._status.endswith(child_main.DONE, said), deadline, owner)

    @property
    def has_started(self) -> bool:
        """Whether the trial has begun. A forked child says so; every child announces its phases."""
        self._read_status()
        return child_main.STARTED in self._status[child_main.READY.size :] or self.phase != ""

    def _wait(self, is_over: Callable[[], bool], deadline: float, owner: socket.socket) -> bool:
        """Wait for ``is_over`` or the child's end, with heartbeats; False at ``deadline``."""
        # A pidfd is readable once its process has ended.
        watched: list[Any] = [self._pidfd, owner]
        if self._connection is not None:
            watched.append(self._connection)
        while self.is_alive and not is_over():
            beat(owner)
            seconds = deadline - time.monotonic()
            readable, _, _ = select.select(watched, [], [], max(0, min(seconds, HEARTBEAT_SECONDS)))
            if self._connection in readable:
                self._read_status()
            elif owner in readable:
                # No request is sent while a trial runs, so the owner has closed its end.
                self.kill()
                sys.exit(0)
            elif not readable and seconds <= HEARTBEAT_SECONDS:
                return False
        return True

    def _read_status(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(BlockingIOError, ConnectionError):
                self._status += self._connection.recv(select.PIPE_BUF, socket.MSG_DONTWAIT)

    @property
    def _ready(self) -> tuple[float, bool] | None:
        """When it was ready (monotonic seconds), and whether it had a context. None: not yet."""
        if len(self._status) < child_main.READY.size:
            return None
        return child_main.READY.unpack(self._status[: child_main.READY.size])

    @property
    def busy_seconds(self) -> float:
        """Seconds since the process was made, without the idle wait of one that is forked ahead."""
        ready_at = self._made_at if self._ready is None else self._ready[0]
        idle = max(0.0, self._begun_at - ready_at)
        return time.monotonic() - self._made_at - idle

    def kill(self) -> None:
        """End the process and its group. Their memory is free only after ``reap``."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def reap(self) -> int:
        """Wait for its end and remove its folder; returns ``os.waitstatus_to_exitcode``'s value."""
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self._pidfd)
        if self._connection is not None:
            self._connection.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        return status

    @property
    def result(self) -> Path:
        return self._folder / child_main.RESULT

    @property
    def log(self) -> str:
        return (self._folder / child_main.LOG).read_text(errors="replace")[-16_000:]

    @property
    def phase(self) -> str:
        """The last phase that the trial announced; empty before the first."""
        return (self._folder / child_main.PHASE).read_bytes().rstrip(b"\0").decode()


def fork(folder: Path, owner: socket.socket) -> Child:
    """Fork a child that waits for its trial. Raises OSError without room for its files."""
    own_folder = _make_folder(folder)
    parent = os.getpid()
    ours, childs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        end_with_parent(parent)
        # While the child holds a socket open, the process at its other end cannot see it close.
        owner.close()
        ours.close()
        child_main.run_as_forked_child(own_folder, childs)
    childs.close()
    # Parent and child both ask for the process group. The second request fails, or changes nothing.
    with contextlib.suppress(PermissionError, ProcessLookupError):
        os.setpgid(pid, pid)
    return Child(pid, own_folder, ours)


def spawn(spec: TrialSpec, folder: Path) -> Child:
    """Start an interpreter with its trial. Raises OSError without room for its files."""
    own_folder = _make_folder(folder)
    spec_file = own_folder / "spec.json"
    try:
        spec_file.write_text(json.dumps(to_json(spec)))
    except OSError:
        shutil.rmtree(own_folder, ignore_errors=True)
        raise
    # The command with which a user would run one trial by hand.
    command = self_process.command("jobs", str(spec_file))
    command += ["--result", str(own_folder / child_main.RESULT)]
    command += ["--phase", str(own_folder / child_main.PHASE)]
    # The command that started the sweep has allowed both.
    if spec.model.trust_remote_code:
        command.append("--trust-remote-code")
    if spec.own_code is not None:
        command.append("--allow-own-code")
    with open(own_folder / child_main.LOG, "w") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            process_group=0,
            preexec_fn=functools.partial(end_with_parent, os.getpid()),
        )
    process.returncode = 0  # reaped by Child.reap, not by subprocess
    return Child(process.pid, own_folder)


def _make_folder(folder: Path) -> Path:
    made = Path(tempfile.mkdtemp(prefix="child-", dir=folder))
    try:
        # The child maps this file into memory, so it must have its full size.
        (made / child_main.PHASE).write_bytes(bytes(child_main.PHASE_BYTES))
        (made / child_main.LOG).touch()
    except OSError:
        shutil.rmtree(made, ignore_errors=True)
        raise
    return made
