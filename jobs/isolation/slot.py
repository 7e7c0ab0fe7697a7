"""A slot: the handle on one GPU's preloaded parent, which runs trials one after another."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from jobs.isolation import preload, prewarm
from jobs.record import TrialRecord, record_from_json
from jobs.spec import TrialSpec, to_json


class SlotDiedError(RuntimeError):
    """The parent went away without an answer: an infrastructure fault, not a property of the trial."""


class Slot:
    """Starts its parent lazily, or takes over one that waits, and a new one when it died. The parent sees the GPUs
    this process sees."""

    def __init__(self, cpus: int) -> None:
        self._cpus = cpus
        self._parent: subprocess.Popen[str] | prewarm.TakenOver | None = None
        self._errors: IO[str]
        self.hello: dict[str, Any] = {}
        """What the parent said of itself: ``preload_seconds``, ``unclean``, ``environment``."""
        self.parents_started = 0

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
        return (
            self._parent.pid if self._parent is not None and self._parent.poll() is None else None
        )

    @property
    def children(self) -> int:
        """Of the parent: one waits for a trial, runs it, or ends; one where the kernel does not tell."""
        if (pid := self.parent_pid) is None:
            return 0
        try:
            return len(Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        except OSError:
            return 1

    def start(self) -> None:
        """Start and preload the parent if it is not there. Raises SlotDiedError if it cannot be had."""
        if self.parent_pid is not None:
            return
        self.close()
        if (found := prewarm.take_over(self._cpus)) is not None:
            self._parent, self._errors = found
        else:
            self._parent, self._errors = self._started()
        self.parents_started += 1
        self.hello = self._answer()

    def _started(self) -> tuple[subprocess.Popen[str], IO[str]]:
        errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with the parent)
        parent = subprocess.Popen(
            [sys.executable, "-m", "jobs.isolation.forkserver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, **preload.environment(self._cpus)},
            text=True,
        )
        return parent, errors

    def run(self, spec: TrialSpec, deadline_seconds: float) -> TrialRecord:
        """Run one trial and wait for its record. Raises SlotDiedError when the parent died meanwhile."""
        self.start()
        assert self._parent is not None
        assert self._parent.stdin is not None
        try:
            request = {"spec": to_json(spec), "deadline_seconds": deadline_seconds}
            self._parent.stdin.write(json.dumps(request) + "\n")
            self._parent.stdin.flush()
        except BrokenPipeError as error:
            raise SlotDiedError("the slot's parent died between trials") from error
        answer = self._answer()
        record = record_from_json(answer)
        overhead = record.wall_seconds - record.measurements.get("counted_seconds", 0.0)
        extra = {"overhead_seconds": overhead, "slot_parent_pid": self._parent.pid}
        return dataclasses.replace(record, measurements={**record.measurements, **extra})

    def close(self) -> None:
        """End the parent and whatever it runs."""
        if self._parent is None:
            return
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # a dead parent has not read its last request
            self._parent.stdin.close()
        try:
            self._parent.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._parent.kill()
            self._parent.wait()
        self._parent.stdout.close()
        self._errors.close()
        self._parent = None

    def _answer(self) -> dict[str, Any]:
        assert self._parent is not None
        assert self._parent.stdout is not None
        line = self._parent.stdout.readline()
        if not line:
            status = self._parent.wait()
            self._errors.seek(0)
            last = ([line.strip() for line in self._errors if line.strip()] or [""])[-1]
            raise SlotDiedError(
                f"the slot's parent ended with status {status} and no answer: {last}"
            )
        answer: dict[str, Any] = json.loads(line)
        return answer
