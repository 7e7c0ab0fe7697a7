"""A slot: the handle on one GPU's preloaded parent process, which runs trials one after another."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from jobs.isolation import prewarm
from jobs.node.process_variables import process_variables
from jobs.record import TrialRecord, record_from_json
from jobs.spec import TrialSpec, to_json

_CLOSE_SECONDS = 5.0


class SlotDiedError(RuntimeError):
    """The parent ended without an answer: an infrastructure fault, not a property of the trial."""


class Slot:
    """Starts its parent at the first trial, or takes over a prewarmed one; replaces a dead one.

    The parent sees the GPUs that this process sees.
    """

    def __init__(self, cpus: int) -> None:
        self._cpus = cpus
        self._parent: subprocess.Popen[str] | prewarm.PrewarmedParent | None = None
        self._errors: IO[str]
        self.hello: dict[str, Any] = {}
        """The parent's first message: ``preload_seconds``, ``unclean``, ``environment``."""
        self.parents_started = 0
        """How many parents this slot has had."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def parent_pid(self) -> int | None:
        """The parent's process id while it lives."""
        if self._parent is None or self._parent.poll() is not None:
            return None
        return self._parent.pid

    @property
    def children(self) -> int:
        """How many child processes the parent has; 1 where the kernel does not list them."""
        pid = self.parent_pid
        if pid is None:
            return 0
        try:
            return len(Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        except OSError:
            return 1

    def start(self) -> None:
        """Start and preload the parent if there is none. Raises SlotDiedError if that fails."""
        if self.parent_pid is not None:
            return
        self.close()
        prewarmed = prewarm.take_over(self._cpus)
        if prewarmed is not None:
            self._parent, self._errors = prewarmed
        else:
            self._parent, self._errors = self._start_parent()
        self.parents_started += 1
        self.hello = self._answer()

    def _start_parent(self) -> tuple[subprocess.Popen[str], IO[str]]:
        """A new parent and the file of its stderr."""
        errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with the parent)
        parent = subprocess.Popen(
            [sys.executable, "-m", "jobs.isolation.forkserver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, **process_variables(self._cpus)},
            text=True,
        )
        return parent, errors

    def run(self, spec: TrialSpec, timeout_seconds: float) -> TrialRecord:
        """Run one trial and wait for its record. Raises SlotDiedError if the parent dies."""
        self.start()
        assert self._parent is not None
        assert self._parent.stdin is not None
        request = {"spec": to_json(spec), "timeout_seconds": timeout_seconds}
        try:
            self._parent.stdin.write(json.dumps(request) + "\n")
            self._parent.stdin.flush()
        except BrokenPipeError as error:
            raise SlotDiedError("the slot's parent died between trials") from error
        return record_from_json(self._answer())

    def close(self) -> None:
        """End the parent and whatever it runs."""
        if self._parent is None:
            return
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # a dead parent has not read its last request
            self._parent.stdin.close()
        try:
            self._parent.wait(timeout=_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._parent.kill()
            self._parent.wait()
        self._parent.stdout.close()
        self._errors.close()
        self._parent = None

    def _answer(self) -> dict[str, Any]:
        """The parent's next message. Raises SlotDiedError if the parent ends without one."""
        assert self._parent is not None
        assert self._parent.stdout is not None
        line = self._parent.stdout.readline()
        if not line:
            status = self._parent.wait()
            raise SlotDiedError(
                f"the slot's parent ended with status {status} and no answer: {self._last_error()}"
            )
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _last_error(self) -> str:
        """The last line that the parent wrote to stderr; empty if it wrote none."""
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors if line.strip()]
        if not lines:
            return ""
        return lines[-1]
