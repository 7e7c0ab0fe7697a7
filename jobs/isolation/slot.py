"""A slot: the handle on one GPU's preloaded parent process, which runs trials one after another."""

import contextlib
import math
import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from jobs import infrastructure, self_process
from jobs.isolation import prewarm
from jobs.isolation.channel import Channel, bounded_timeout
from jobs.node.processes import process_variables, standstill
from jobs.record import TrialRecord
from jobs.spec import TrialSpec, from_json, to_json

PARENT_COMMAND = tuple(self_process.command("jobs.isolation.forkserver"))


class SlotDiedError(RuntimeError):
    """The parent ended or hung without an answer: a fault of the machine, not of the trial. Its
    rule (``jobs.infrastructure.RULES``) is empty if the trial may have ended it."""

    def __init__(self, reason: str, rule: str = "") -> None:
        super().__init__(reason)
        self.rule = rule


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """How long a slot waits for its parent before it kills the parent. All in seconds."""

    start: float = 600.0  # for a new parent's first message: it imports large libraries
    silence: float = 120.0  # between two messages; freeing a trial's memory may take a minute
    grace: float = 180.0  # for the record, beyond the trial's own timeout
    end: float = 5.0  # for a parent to end by itself, and to disappear once it is killed


class Slot:
    """Starts its parent at the first trial, or takes over a prewarmed one. A dead parent is
    replaced; one that does not answer within ``limits`` is killed."""

    def __init__(
        self,
        cpus: int,
        *,
        limits: Limits | None = None,
        parent_command: Sequence[str] = PARENT_COMMAND,
    ) -> None:
        self._cpus = cpus
        self._limits = limits or Limits()
        self._parent_command = tuple(parent_command)
        self._parent: subprocess.Popen[bytes] | prewarm.PrewarmedParent | None = None
        self._channel: Channel
        self._errors: int  # descriptor of the parent's stderr
        self.hello: dict[str, Any] = {}
        """The parent's first message: ``preload_seconds``, ``unclean``, ``environment``."""
        self.parents_started = 0  # how many parents this slot has had

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def parent_pid(self) -> int | None:
        if self._parent is None or self._parent.poll() is not None:
            return None
        return self._parent.pid

    @property
    def children(self) -> int:
        """How many child processes the parent has; 1 if the kernel does not list them."""
        pid = self.parent_pid
        if pid is None:
            return 0
        try:
            return len(_child_pids(pid))
        except OSError:
            return 1

    def start(self) -> None:
        """Start and preload the parent if there is none. Raises SlotDiedError if that fails."""
        if self.parent_pid is not None:
            return
        self.close()
        prewarmed = prewarm.take_over(self._cpus)
        if prewarmed is not None:
            self._parent, connection, self._errors = prewarmed
            self._channel = Channel(connection)
        else:
            # Its errors are kept in memory, because a full temporary folder would lose them.
            self._errors = os.memfd_create("slot-parent-stderr")
            ours, parents = socket.socketpair()
            with parents:
                self._parent = subprocess.Popen(
                    self._parent_command,
                    stdin=parents.fileno(),
                    stdout=parents.fileno(),
                    stderr=self._errors,
                    # A slot's process sees the GPUs of a trial, and no others.
                    env={**os.environ, **process_variables(self._cpus, gpus=None)},
                )
            self._channel = Channel(ours)
        self.parents_started += 1
        self.hello = self._answer(math.inf, silence_seconds=self._limits.start)

    def run(self, spec: TrialSpec, timeout_seconds: float) -> TrialRecord:
        """Run a trial and wait for its record. Raises SlotDiedError if the parent dies or hangs."""
        self.start()
        seconds = bounded_timeout(timeout_seconds)
        now = time.monotonic()
        request = {"spec": to_json(spec), "timeout_seconds": seconds}
        try:
            self._channel.send(request, now + self._limits.silence)
        except ConnectionError as error:
            raise SlotDiedError("the slot's parent died between trials") from error
        except TimeoutError as error:
            raise self._killed_parent(str(error)) from None
        # The parent itself ends the trial at its timeout. The grace is for what it does afterwards.
        deadline = now + seconds + self._limits.grace
        return from_json(TrialRecord, self._answer(deadline, silence_seconds=self._limits.silence))

    def close(self) -> None:
        if self._parent is None:
            return
        self._channel.end_requests()
        try:
            self._parent.wait(timeout=self._limits.end)
        except subprocess.TimeoutExpired:
            self._kill_parent()
        self._forget_parent()

    def _answer(self, deadline: float, *, silence_seconds: float) -> dict[str, Any]:
        """The parent's next message. Raises SlotDiedError if it ends or hangs without one."""
        assert self._parent is not None
        try:
            answer = self._channel.receive(deadline, silence_seconds)
        except TimeoutError as error:
            raise self._killed_parent(str(error)) from None
        if answer is not None:
            return answer
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._parent.wait(timeout=self._limits.end)
        status = self._parent.poll()
        size = os.fstat(self._errors).st_size
        # ``pread`` does not move the descriptor's position, which the parent may share.
        tail = os.pread(self._errors, 16_000, max(0, size - 16_000)).decode(errors="replace")
        last_error = next(reversed(tail.strip().splitlines()), "").strip()
        rule = infrastructure.DISK_FULL if infrastructure.says_disk_full(last_error) else ""
        raise SlotDiedError(
            f"the slot's parent ended with status {status} and no answer: {last_error}", rule
        )

    def _killed_parent(self, fault: str) -> SlotDiedError:
        assert self._parent is not None
        state = standstill(self._parent.pid)
        has_ended = self._kill_parent()
        self._forget_parent()
        reason = f"the slot's parent {fault}{state} and was killed"
        if not has_ended:
            reason += ", but the kernel has not ended it yet"
        return SlotDiedError(reason, infrastructure.SLOT_UNRESPONSIVE)

    def _kill_parent(self) -> bool:
        """Kill the parent and its children's groups; False if a disk or a driver holds it."""
        assert self._parent is not None
        children: list[int] = []
        with contextlib.suppress(OSError):
            children = _child_pids(self._parent.pid)
        self._parent.kill()
        for child in children:
            # A child leads its own group. The kernel kills it with its parent, but not its workers.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if os.getpgid(child) == child:
                    os.killpg(child, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._parent.wait(timeout=self._limits.end)
            return True
        return False

    def _forget_parent(self) -> None:
        self._channel.close()
        os.close(self._errors)
        self._parent = None


def _child_pids(pid: int) -> list[int]:
    """A process's children. Raises OSError if the kernel does not list them."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
