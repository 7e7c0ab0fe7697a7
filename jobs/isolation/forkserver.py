"""A slot's long-lived process: preloaded once, it makes one child per trial and enforces each child's deadline.

It reads one JSON request a line and answers each with one JSON line. Closing its input ends it and its child.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

from jobs import errors
from jobs.isolation import child_handle, child_main, prewarm
from jobs.isolation.build_ops import remove_abandoned_locks
from jobs.isolation.preload import preload, remember_processor, unclean
from jobs.isolation.scratch import own_folder
from jobs.node import environment, nvml
from jobs.record import Outcome, TrialRecord, record_from_json, record_to_json
from jobs.spec import TrialSpec, spec_from_json
from jobs.trial import run as trial

PATIENCE_SECONDS = 10.0
"""How long a child waits for a trial."""
_RELEASE_SECONDS = 10.0
_SUSPICIOUS = (Outcome.CRASHED, Outcome.TIMED_OUT, Outcome.FAILED)
_DRIVER_BYTES = 16 * 2**20


def serve(channels: Callable[[], tuple[int, int]], folder: Path) -> None:
    """Preload, say so, then run the trials asked for until requests end.

    ``channels`` gives descriptors of requests and replies; not before it returns is the GPU this process's to touch.
    """
    seconds = preload()
    requests, answers = channels()
    replies = os.fdopen(answers, "w")
    reason = unclean()
    # From here on nothing this process holds can become garbage: children share its pages unwritten.
    import gc

    gc.collect()
    gc.freeze()
    _reply(
        replies,
        {"preload_seconds": seconds, "unclean": reason, "environment": environment.describe()},
    )
    with contextlib.closing(Children(folder, (requests, answers))) as children:
        for request in _asked(requests, children):
            spec = spec_from_json(request["spec"])
            isolation = "fresh" if reason else spec.measure.isolation
            if isolation == "fork" and spec.recipe.deepspeed is not None and remember_processor():
                children.discard()  # it could not know
            record = children.run(spec, request["deadline_seconds"], isolation)
            if spec.recipe.deepspeed is not None and record.outcome is not Outcome.OK:
                children.reap()
                remove_abandoned_locks(begun_since=record.started_at)
            if reason:
                record = dataclasses.replace(
                    record, measurements={**record.measurements, "isolation_fallback": reason}
                )
            _reply(replies, record_to_json(record))
            children.make_ready(record)


def _asked(requests: int, children: Children) -> Iterator[dict[str, Any]]:
    """The requests as they come. Where none does for a while, nothing of this process's stays on the GPU meanwhile."""
    with os.fdopen(requests, "r", closefd=False) as lines:
        while True:
            asked, _, _ = select.select(
                [requests], [], [], PATIENCE_SECONDS
            )  # none is in the buffer: they come singly
            if not asked:
                children.discard()
            if not (line := lines.readline()):
                return
            yield json.loads(line)


class Children:
    """Runs trials one after another, each in a child of its own. While one ends and the next trial is being chosen, the
    next child is forked and makes its context: as the kernel takes the memory back from the one, the other begins.

    ``channels`` are the descriptors of requests and replies.
    """

    def __init__(self, folder: Path, channels: tuple[int, int]) -> None:
        self._folder, self._channels = folder, channels
        self._next: child_handle.Child | None = None
        self._last: child_handle.Child | None = None
        self._idle_bytes = 0
        """Of the GPU, in use when no child was there."""
        self._context_bytes: int | None = None
        """What a child's bare context takes of it, once one was seen to."""

    def run(self, spec: TrialSpec, deadline_seconds: float, isolation: str) -> TrialRecord:
        """One trial; whatever it does, its processes are ended."""
        kills, give_up = _host_oom_kills(), time.monotonic() + deadline_seconds
        one = self._last = self._made(spec, isolation, give_up)
        one.begin(spec, self._context_bytes or 0)
        in_time = one.wait(give_up, self._channels[0])
        wall, where, log = one.busy_seconds, one.phase, one.log
        started = time.time() - wall
        one.kill()
        if in_time and one.result.exists():
            record = record_from_json(json.loads(one.result.read_text()))
        else:
            status = self.reap()
            outcome, reason = errors.classify_exit(status, host_oom_kills=_host_oom_kills() - kills)
            if not in_time:
                outcome = Outcome.TIMED_OUT
                reason = f"no result after {deadline_seconds:g} s, in phase {where or 'start'}"
            silent = TrialRecord(
                spec=spec, outcome=outcome, reason=reason, phase=where, isolation=isolation
            )
            here = environment.describe()
            record = dataclasses.replace(
                silent, environment=here, measurements=trial.placement(spec)
            )
        return dataclasses.replace(record, started_at=started, wall_seconds=wall, log=log)

    def make_ready(self, last: TrialRecord) -> None:
        """See the last child's end, and have the next one forked meanwhile, if it is likely to be.

        Not where somebody else uses the GPU: what is whose must then be seen anew for every child. Nor where what came
        of the last trial makes others look at the GPU first.
        """
        is_likely = last.isolation == "fork" and last.outcome not in _SUSPICIOUS
        if is_likely and self._context_bytes is not None and self._idle_bytes <= nvml.IDLE_BYTES:
            with contextlib.suppress(OSError):  # it is made when it is needed
                self._next = child_handle.fork(self._folder, self._channels)
        self.reap()
        self._await_release()

    def reap(self) -> int:
        """See the last child's end; returns its exit status."""
        last, self._last = self._last, None
        return last.reap() if last is not None else 0

    def discard(self) -> None:
        """End the child that waits for a trial, if one does."""
        if self._next is not None:
            self._next.kill()
            self._last, self._next = self._next, None
            self.reap()
            self._await_release()

    def close(self) -> None:
        """End every child."""
        for one in (self._last, self._next):
            if one is not None:
                one.kill()
                one.reap()
        self._last = self._next = None

    def _made(self, spec: TrialSpec, isolation: str, give_up: float) -> child_handle.Child:
        if isolation == "fork" and self._next is not None and self._next.lives:
            made, self._next = self._next, None
            return made
        self.discard()
        self._idle_bytes = _device_bytes()
        if isolation != "fork":
            return child_handle.spawn(spec, self._folder)
        made = child_handle.fork(self._folder, self._channels)
        self._context_bytes = None
        if made.is_ready(give_up, self._channels[0]):
            used = _device_bytes()
            if used > self._idle_bytes or not used:
                self._context_bytes = used - self._idle_bytes
        return made

    def _await_release(self) -> None:
        """The driver takes a moment to free a dead process's memory; the next trial must not find it."""
        give_up = time.monotonic() + _RELEASE_SECONDS
        own = self._context_bytes or 0 if self._next is not None else 0
        while (used := _device_bytes()) > self._idle_bytes + own + _DRIVER_BYTES:
            if time.monotonic() > give_up:
                self._idle_bytes = used - own  # it is somebody else's
                return
            time.sleep(0.02)


def _device_bytes() -> int:
    """Memory in use on this slot's GPU; 0 without one."""
    with nvml.session():  # or both questions would initialise it, while the next trial waits
        uuids = nvml.visible_uuids()
        return nvml.used_bytes(uuids[0]) if uuids else 0


def _host_oom_kills() -> int:
    """How often this kernel's out-of-memory killer has struck since boot."""
    try:
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    except OSError:
        pass
    return 0


def _reply(replies: TextIO, message: Any) -> None:
    replies.write(json.dumps(message) + "\n")
    replies.flush()


def main() -> None:
    """Entry point of ``python -m jobs.isolation.forkserver``: requests on stdin, replies on what was stdout.

    ``--door DESCRIPTOR PID`` waits at a listening socket to be taken over, and ends with the process that started it.
    """
    channels = os.dup(0), os.dup(1)
    os.dup2(2, 1)  # a library that prints while being imported must not garble the replies
    with own_folder("orchestrator-slot-") as folder:
        if sys.argv[1:2] == ["--door"]:
            child_main.end_with(int(sys.argv[3]))
            serve(functools.partial(prewarm.taken, int(sys.argv[2])), folder)
        else:
            serve(lambda: channels, folder)


if __name__ == "__main__":
    main()
