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
from collections.abc import Callable, Mapping, Sequence
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
        wait_for([self], lambda: self._ready is not None, deadline, owner)
        return self._ready is not None and self._ready[1]

    def begin(self, spec: TrialSpec, context_bytes: int, variables: Mapping[str, str]) -> None:
        """Give a forked child its trial, the GPU memory that its context took, and variables of its
        environment."""
        self._begun_at = time.monotonic()
        if self._connection is not None:
            request = {"spec": to_json(spec), "context_bytes": context_bytes}
            request["variables"] = dict(variables)
            with contextlib.suppress(OSError):  # the child has ended
                self._connection.sendall(json.dumps(request).encode())
                self._connection.shutdown(socket.SHUT_WR)

    @property
    def is_done(self) -> bool:
        """Whether it has said that its record is written, or has ended."""
        said = child_main.READY.size  # where what it says of its trial begins
        return self._status.endswith(child_main.DONE, said) or not self.is_alive

    @property
    def has_started(self) -> bool:
        """Whether the trial has begun. A forked child says so; every child announces its phases."""
        self.read_status()
        return child_main.STARTED in self._status[child_main.READY.size :] or self.phase != ""

    @property
    def watched(self) -> list[Any]:
        """What becomes readable when it says something, or has ended."""
        return [self._pidfd] if self._connection is None else [self._pidfd, self._connection]

    def read_status(self) -> None:
        """Note what it has said; it says little, and never waits for that."""
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

    def ask_to_end(self) -> None:
        """Have it write a record of what it has measured so far, if it can."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)

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
        return self._announced[0].rstrip(b"\0").decode()

    @property
    def progress(self) -> int:
        """How often the trial has announced a phase, or a part of a step."""
        return self._announced[1]

    @property
    def _announced(self) -> tuple[bytes, int]:
        return child_main.PHASE.unpack((self._folder / child_main.PHASE_FILE).read_bytes())


def wait_for(
    children: Sequence[Child], is_over: Callable[[], bool], deadline: float, owner: socket.socket
) -> bool:
    """Wait for ``is_over`` or the end of all children, with heartbeats; False at ``deadline``."""
    while alive := [child for child in children if child.is_alive]:
        if is_over():
            break
        beat(owner)
        seconds = deadline - time.monotonic()
        watched = [owner, *(item for child in alive for item in child.watched)]
        readable, _, _ = select.select(watched, [], [], max(0, min(seconds, HEARTBEAT_SECONDS)))
        if owner in readable:
            # No request is sent while a trial runs, so the owner has closed its end.
            for child in children:
                child.kill()
            sys.exit(0)
        for child in alive:
            child.read_status()
        if not readable and seconds <= HEARTBEAT_SECONDS:
            return False
    return True


def fork(folder: Path, owner: socket.socket, variables: Mapping[str, str]) -> Child:
    """Fork a child that waits for its trial, with further variables in its environment. Raises
    OSError without room for its files."""
    own_folder = _make_folder(folder)
    parent = os.getpid()
    ours, childs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        end_with_parent(parent)
        # While the child holds a socket open, the process at its other end cannot see it close.
        owner.close()
        ours.close()
        os.environ.update(variables)
        child_main.run_as_forked_child(own_folder, childs)
    childs.close()
    # Parent and child both ask for the process group. The second request fails, or changes nothing.
    with contextlib.suppress(PermissionError, ProcessLookupError):
        os.setpgid(pid, pid)
    return Child(pid, own_folder, ours)


def spawn(spec: TrialSpec, folder: Path, variables: Mapping[str, str]) -> Child:
    """Start an interpreter with its trial and further variables. Raises OSError without room for
    its files."""
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
    command += ["--phase", str(own_folder / child_main.PHASE_FILE)]
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
            env={**os.environ, **variables},
            process_group=0,
            preexec_fn=functools.partial(end_with_parent, os.getpid()),
        )
    process.returncode = 0  # reaped by Child.reap, not by subprocess
    return Child(process.pid, own_folder)


def _make_folder(folder: Path) -> Path:
    made = Path(tempfile.mkdtemp(prefix="child-", dir=folder))
    try:
        # The child maps this file into memory, so it must have its full size.
        (made / child_main.PHASE_FILE).write_bytes(bytes(child_main.PHASE.size))
        (made / child_main.LOG).touch()
    except OSError:
        shutil.rmtree(made, ignore_errors=True)
        raise
    return made
