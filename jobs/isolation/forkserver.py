"""A slot's long-lived process: preloads once, then runs each trial in a child, with a timeout.

It reads one JSON request a line and answers each with one JSON line. Closing its input ends it and
its child.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
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
from jobs.isolation.child_handle import Child
from jobs.isolation.preload import preload, remember_processor, unclean
from jobs.isolation.scratch import own_folder
from jobs.node import environment, nvml
from jobs.record import Delivery, Outcome, TrialRecord, record_from_json, record_to_json
from jobs.spec import TrialSpec, spec_from_json

IDLE_CHILD_SECONDS = 10.0
"""How long a child that was forked ahead waits for a trial."""
RELEASE_SECONDS = 10.0
"""How long the driver may take to free a dead process's GPU memory."""
_SUSPICIOUS = (Outcome.CRASHED, Outcome.TIMED_OUT, Outcome.FAILED)
"""Outcomes after which the GPU is looked at before anything else touches it."""
_DRIVER_BYTES = 16 * 2**20
"""By how much the driver's own use of an idle GPU varies."""


def serve(channels: Callable[[], tuple[int, int]], folder: Path) -> None:
    """Preload, say so, then run trials until the requests end.

    ``channels`` returns the descriptors of requests and replies. Until it returns, this process may
    not use the GPU.
    """
    preload_seconds = preload()
    requests, answers = channels()
    replies = os.fdopen(answers, "w")
    not_forkable = unclean()
    # From here on nothing this process holds can become garbage: children share its pages
    # unwritten.
    gc.collect()
    gc.freeze()
    hello = {
        "preload_seconds": preload_seconds,
        "unclean": not_forkable,
        "environment": environment.describe(),
    }
    _reply(replies, hello)
    with contextlib.closing(ChildRunner(folder, requests, answers)) as children:
        for request in _requests(requests, children):
            spec = spec_from_json(request["spec"])
            record = _run(children, spec, request["timeout_seconds"], not_forkable)
            _reply(replies, record_to_json(record))
            children.fork_ahead(record)


def _run(
    children: ChildRunner, spec: TrialSpec, timeout_seconds: float, not_forkable: str
) -> TrialRecord:
    """One trial, as this process can have it run."""
    isolation = "fresh" if not_forkable else spec.measure.isolation
    uses_deepspeed = spec.settings.deepspeed is not None
    if isolation == "fork" and uses_deepspeed and remember_processor():
        children.discard_next()  # it was forked before the processor was looked at
    record = children.run(spec, timeout_seconds, isolation, not_forkable)
    if uses_deepspeed and record.outcome is not Outcome.OK:
        children.reap()
        remove_abandoned_locks(begun_since=record.started_at)
    return record


def _requests(
    descriptor: int, children: ChildRunner, idle_seconds: float = IDLE_CHILD_SECONDS
) -> Iterator[dict[str, Any]]:
    """The requests as they come.

    A child that was forked ahead is ended if none comes within ``idle_seconds``.
    """
    with os.fdopen(descriptor, "r", closefd=False) as lines:
        while True:
            # No request is ever in the buffer: each is sent after the last was answered.
            readable, _, _ = select.select([descriptor], [], [], idle_seconds)
            if not readable:
                children.discard_next()
            line = lines.readline()
            if not line:
                return
            yield json.loads(line)


class ChildRunner:
    """Runs trials one after another, each in a child of its own.

    While one child ends and the next trial is being chosen, the next child is forked ahead and
    creates its CUDA context: the kernel takes memory back from the one while the other begins.
    """

    def __init__(
        self, folder: Path, requests: int, answers: int, release_seconds: float = RELEASE_SECONDS
    ) -> None:
        self._folder = folder
        self._release_seconds = release_seconds
        self._requests, self._answers = requests, answers
        self._next: Child | None = None
        """Forked ahead."""
        self._last: Child | None = None
        """Killed, and perhaps not gone yet."""
        self._idle_bytes = 0
        """GPU memory in use while no child was there."""
        self._context_bytes: int | None = None
        """GPU memory of a child's bare context, once it was seen."""

    def run(
        self, spec: TrialSpec, timeout_seconds: float, isolation: str, isolation_fallback: str = ""
    ) -> TrialRecord:
        """One trial. Whatever it does, its processes are ended."""
        oom_kills_before = _host_oom_kills()
        deadline = time.monotonic() + timeout_seconds
        child = self._last = self._take_child(spec, isolation, deadline)
        child.begin(spec, self._context_bytes or 0)
        in_time = child.wait(deadline, self._requests)
        delivery = Delivery(
            started_at=time.time() - child.busy_seconds,
            slot_seconds=child.busy_seconds,
            isolation=isolation,
            isolation_fallback=isolation_fallback,
            slot_pid=os.getpid(),
            node=environment.node(),
            cpus=spec.needs.cpus or environment.cores(),
            host_memory_bytes=spec.needs.host_bytes,
            log=child.log,
        )
        phase = child.phase
        child.kill()
        if in_time and child.result.exists():
            record = record_from_json(json.loads(child.result.read_text()))
        else:
            timeout = None if in_time else timeout_seconds
            record = self._record_of_silent_child(spec, phase, timeout, oom_kills_before)
        return dataclasses.replace(record, delivery=delivery)

    def _record_of_silent_child(
        self, spec: TrialSpec, phase: str, timeout_seconds: float | None, oom_kills_before: int
    ) -> TrialRecord:
        """The record of a child that left none; ``timeout_seconds`` None: it ended by itself."""
        status = self.reap()
        if timeout_seconds is None:
            oom_kills = _host_oom_kills() - oom_kills_before
            outcome, reason = errors.classify_exit(status, host_oom_kills=oom_kills)
        else:
            outcome = Outcome.TIMED_OUT
            reason = f"no result after {timeout_seconds:g} s, in phase {phase or 'start'}"
        return TrialRecord(
            spec=spec,
            outcome=outcome,
            reason=reason,
            phase=phase,
            environment=environment.describe(),
        )

    def fork_ahead(self, last: TrialRecord) -> None:
        """Fork the next child if it is likely to be needed, while the last one ends.

        Not if another process uses the GPU, because each child's memory is then measured anew; nor
        after an outcome for which the caller looks at the GPU first.
        """
        is_likely = last.delivery.isolation == "fork" and last.outcome not in _SUSPICIOUS
        is_alone = self._context_bytes is not None and self._idle_bytes <= nvml.IDLE_BYTES
        if is_likely and is_alone:
            with contextlib.suppress(OSError):  # it is then forked when it is needed
                self._next = child_handle.fork(self._folder, (self._requests, self._answers))
        self.reap()
        self._wait_for_release()

    def reap(self) -> int:
        """Wait for the last child's end; returns its exit status."""
        last, self._last = self._last, None
        return last.reap() if last is not None else 0

    def discard_next(self) -> None:
        """End the child that was forked ahead, if there is one."""
        if self._next is None:
            return
        self._next.kill()
        self._last, self._next = self._next, None
        self.reap()
        self._wait_for_release()

    def close(self) -> None:
        """End every child."""
        for child in (self._last, self._next):
            if child is not None:
                child.kill()
                child.reap()
        self._last = self._next = None

    def _take_child(self, spec: TrialSpec, isolation: str, deadline: float) -> Child:
        if isolation == "fork" and self._next is not None and self._next.is_alive:
            child, self._next = self._next, None
            return child
        self.discard_next()
        self._idle_bytes = _gpu_bytes()
        if isolation != "fork":
            return child_handle.spawn(spec, self._folder)
        child = child_handle.fork(self._folder, (self._requests, self._answers))
        self._context_bytes = None
        if child.is_ready(deadline, self._requests):
            self._context_bytes = self._context_seen()
        return child

    def _context_seen(self) -> int | None:
        """GPU memory that the context of a new child takes; None if NVML shows no growth."""
        used = _gpu_bytes()
        if used > self._idle_bytes or not used:
            return used - self._idle_bytes
        return None

    def _wait_for_release(self) -> None:
        """Wait until the driver has freed a dead process's memory, or give up."""
        give_up = time.monotonic() + self._release_seconds
        own_bytes = (self._context_bytes or 0) if self._next is not None else 0
        while (used := _gpu_bytes()) > self._idle_bytes + own_bytes + _DRIVER_BYTES:
            if time.monotonic() > give_up:
                self._idle_bytes = used - own_bytes  # it belongs to another process
                return
            time.sleep(0.02)


def _gpu_bytes() -> int:
    """Memory in use on this slot's GPU; 0 without one."""
    with nvml.session():  # both questions below then share one initialisation
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
    """Serve requests from stdin; replies go to what was stdout.

    ``--socket DESCRIPTOR PID`` preloads before there is a slot: it waits at a listening socket for
    one, and ends with the process PID that started it.
    """
    channels = os.dup(0), os.dup(1)
    os.dup2(2, 1)  # a library that prints while being imported must not garble the replies
    with own_folder("orchestrator-slot-") as folder:
        if sys.argv[1:2] == ["--socket"]:
            listener, owner = int(sys.argv[2]), int(sys.argv[3])
            child_main.end_with(owner)
            serve(functools.partial(prewarm.accept, listener), folder)
        else:
            serve(lambda: channels, folder)


if __name__ == "__main__":
    main()
