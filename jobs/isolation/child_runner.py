"""Runs a slot's trials one after another, each in a child of its own, with a timeout."""

import contextlib
import os
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from jobs import errors
from jobs.infrastructure import DISK_FULL, NOT_STARTED, RULES, disk_in_words, unmeasured
from jobs.isolation import child_handle, child_main, compiler_cache
from jobs.isolation.channel import bounded_timeout
from jobs.isolation.child_handle import Child
from jobs.isolation.ranks import Ranks
from jobs.node import environment, gpu_fitness, nvml
from jobs.record import Outcome, Provenance, TrialRecord, with_provenance
from jobs.spec import TrialSpec


def slot_gpu_bytes() -> int:
    """Memory in use on this slot's GPUs, by all processes; 0 without a GPU."""
    with nvml.session():  # all questions then share one initialisation
        return sum(map(nvml.used_bytes, nvml.visible_uuids()))


class GpuAccount:
    """Follows the memory in use on the slot's GPU from child to child. All sizes are bytes."""

    def __init__(self, gpu_bytes: Callable[[], int], release_seconds: float) -> None:
        self._gpu_bytes = gpu_bytes
        self._release_seconds = release_seconds
        self._idle_bytes = 0  # in use while there was no child
        self.context_bytes: int | None = None
        """A child's bare context; None: not measured yet, or not visible to NVML."""

    @property
    def is_alone(self) -> bool:
        """Whether a context was measured and no other process uses the GPU."""
        return self.context_bytes is not None and self._idle_bytes <= gpu_fitness.IDLE_BYTES

    def note_idle(self) -> None:
        self._idle_bytes = self._gpu_bytes()

    def note_context(self) -> None:
        """Measure the context that the first child since ``note_idle`` has created."""
        used = self._gpu_bytes()
        # With less memory in use, another process has left. Without a GPU both figures are 0.
        is_known = used > self._idle_bytes or not used
        self.context_bytes = used - self._idle_bytes if is_known else None

    def wait_for_release(self, *, has_waiting_child: bool) -> None:
        """Wait until a dead child's memory is free, or give up; a waiting child's context stays."""
        give_up = time.monotonic() + self._release_seconds
        staying = (self.context_bytes or 0) if has_waiting_child else 0
        while True:
            used = self._gpu_bytes()
            # The driver's own use of an idle GPU varies by some MiB.
            if used <= self._idle_bytes + staying + 16 * 2**20:
                return
            if time.monotonic() > give_up:
                # What has not been freed by now belongs to another process.
                self._idle_bytes = used - staying
                return
            time.sleep(0.02)


_SUSPICIOUS = (Outcome.CRASHED, Outcome.TIMED_OUT, Outcome.FAILED)
"""Outcomes after which the GPU is checked before another process uses it."""
START_ATTEMPTS = 3
"""How many processes are started for a trial, if each ends before it begins the trial."""


class ChildRunner:
    """Runs each trial in a child process. While one child ends and the next trial is being chosen,
    the next child is already forked and creates its CUDA context::

        trial k      │ child k runs its trial │ killed, its memory is freed │
        trial k + 1                           │ child k+1: context, waits   │ runs its trial │
    """

    def __init__(
        self,
        folder: Path,
        owner: socket.socket,
        *,
        release_seconds: float = 10.0,
        gpu_bytes: Callable[[], int] = slot_gpu_bytes,
    ) -> None:
        """``folder`` holds the files of the children. ``owner`` gets heartbeats of this process."""
        self._folder = folder
        self._owner = owner
        self._gpu = GpuAccount(gpu_bytes, release_seconds)
        self._next: Child | None = None  # the child that was forked ahead of its trial
        self._last: Ranks | None = None
        """The processes of the last trial. They may not have ended yet."""
        self._devices = [nvml.visible_device(uuid) for uuid in nvml.visible_uuids()]

    def run(
        self, spec: TrialSpec, timeout_seconds: float, isolation: str, isolation_fallback: str = ""
    ) -> TrialRecord:
        """Run one trial, "fork" or "fresh". Whatever the trial does, its processes are ended."""
        deadline = time.monotonic() + bounded_timeout(timeout_seconds)
        for _ in range(START_ATTEMPTS):
            try:
                record = self._attempt(spec, deadline, timeout_seconds, isolation)
            except OSError as error:
                if not errors.is_disk_full(error):
                    raise
                reason = errors.disk_full_reason(error)
                record = unmeasured(spec, DISK_FULL, reason, environment=environment.describe())
            if record.rule != NOT_STARTED:
                break
        return with_provenance(record, isolation_fallback=isolation_fallback)

    def _attempt(
        self, spec: TrialSpec, deadline: float, timeout_seconds: float, isolation: str
    ) -> TrialRecord:
        """Give the trial to its processes. Raises OSError if there is no room for their files."""
        oom_kills_before = _host_oom_kills()
        began = time.time()
        ranks = self._last = self._start_ranks(spec, isolation, deadline)
        in_time = ranks.wait(deadline, self._owner)
        # Read everything in the children's folders before ``reap`` removes the folders.
        provenance = _provenance(spec, ranks, isolation)
        phase, prefix, left = ranks.decisive.phase, ranks.prefix, ranks.record
        ranks.kill()
        if left is None or not in_time:
            compiler_cache.remove_incomplete(since=began)
        if not in_time:
            self.reap()
            reason = f"no result after {timeout_seconds:g} s, in phase {phase or 'start'}"
            left = left or TrialRecord(spec=spec, outcome=Outcome.TIMED_OUT)
            record = replace(left, outcome=Outcome.TIMED_OUT, rule="", reason=reason, phase=phase)
        elif left is not None:
            record = left
        elif not ranks.decisive.has_started:
            record = self._record_without_start(spec)
        else:
            record = self._record_of_ended_child(spec, phase, oom_kills_before, provenance.log)
        # What a node cannot do, it can do for no rank.
        is_of_all = record.outcome in (Outcome.OK, Outcome.UNSUPPORTED)
        reason = record.reason if is_of_all else prefix + record.reason
        # A trial that left no record has no environment yet.
        where = record.environment or environment.describe()
        return replace(record, provenance=provenance, environment=where, reason=reason)

    def _record_of_ended_child(
        self, spec: TrialSpec, phase: str, oom_kills_before: int, log: str
    ) -> TrialRecord:
        disk = disk_in_words(self._folder)  # removing the child's files makes room again
        status = self.reap()
        if status == child_main.UNWRITABLE:
            return unmeasured(
                spec, DISK_FULL, f"the record could not be written: {disk}", phase=phase
            )
        oom_kills = _host_oom_kills() - oom_kills_before
        outcome, reason = errors.classify_exit(status, host_oom_kills=oom_kills, log=log)
        return TrialRecord(spec=spec, outcome=outcome, reason=reason, phase=phase)

    def _record_without_start(self, spec: TrialSpec) -> TrialRecord:
        """The record of a child that ended before its trial began. The trial is not to blame."""
        status = self.reap()
        # The next process's context must not be measured against memory that is still being freed.
        self._gpu.wait_for_release(has_waiting_child=False)
        _, ended = errors.classify_exit(status, host_oom_kills=0)
        reason = f"{START_ATTEMPTS} processes ended before the trial began, the last: {ended}"
        return unmeasured(spec, NOT_STARTED, reason)

    def fork_ahead(self, last: TrialRecord) -> None:
        """Fork the next child while the last one ends. Not beside another process on the GPU,
        because each context must then be measured again, and not if the GPU is checked first."""
        is_suspicious = last.outcome in _SUSPICIOUS or last.rule in RULES
        if last.provenance.isolation == "fork" and not is_suspicious and self._gpu.is_alone:
            with contextlib.suppress(OSError):  # it is then forked when it is needed
                self._next = child_handle.fork(self._folder, self._owner, self._device(0))
        self.reap()
        self._gpu.wait_for_release(has_waiting_child=self._next is not None)

    def reap(self) -> int:
        """Wait for the end of the last trial's processes; returns the exit status of the one that
        decided its outcome, 0 if there is none."""
        last, self._last = self._last, None
        return 0 if last is None else last.reap()

    def discard_next(self) -> None:
        if self._next is not None:
            self._next.kill()
            self._next.reap()
            self._next = None
            self._gpu.wait_for_release(has_waiting_child=False)

    def close(self) -> None:
        for child in (self._last, self._next):
            if child is not None:
                child.kill()
                child.reap()
        self._last = self._next = None

    def _start_ranks(self, spec: TrialSpec, isolation: str, deadline: float) -> Ranks:
        """The trial's processes, each of which has got the trial."""
        ranks = self._last = Ranks(spec.world_size, self._folder)
        try:
            ranks.add(self._take_child(spec, isolation, deadline, ranks.variables[0]))
            for rank, variables in list(enumerate(ranks.variables))[1:]:
                ranks.add(self._new_child(spec, isolation, self._device(rank), variables))
        except OSError:
            ranks.kill()
            self.reap()
            raise
        ranks.begin(spec, self._gpu.context_bytes or 0)
        return ranks

    def _device(self, rank: int) -> dict[str, str]:
        """The variable with which a rank sees its GPU alone; empty if there is no other."""
        several = len(self._devices) > 1
        return {"CUDA_VISIBLE_DEVICES": self._devices[rank]} if several else {}

    def _new_child(
        self, spec: TrialSpec, isolation: str, device: dict[str, str], variables: dict[str, str]
    ) -> Child:
        if isolation != "fork":
            return child_handle.spawn(spec, self._folder, device | variables)
        return child_handle.fork(self._folder, self._owner, device)

    def _take_child(
        self, spec: TrialSpec, isolation: str, deadline: float, variables: dict[str, str]
    ) -> Child:
        """The child that was forked ahead if it can run the trial, else a new one."""
        if isolation == "fork" and self._next is not None and self._next.is_alive:
            child, self._next = self._next, None
            return child
        self.discard_next()
        # There is no child now, so the GPU memory in use belongs to other processes.
        self._gpu.note_idle()
        child = self._new_child(spec, isolation, self._device(0), variables)
        if isolation != "fork":
            return child
        self._gpu.context_bytes = None
        if child.is_ready(deadline, self._owner):
            self._gpu.note_context()
        return child


def _provenance(spec: TrialSpec, ranks: Ranks, isolation: str) -> Provenance:
    """How the trial was run. Its slot time ends with this call."""
    return Provenance(
        # Without the child's idle wait, so that the times of successive trials do not overlap.
        started_at=time.time() - ranks.busy_seconds,
        slot_seconds=ranks.busy_seconds,
        isolation=isolation,
        slot_pid=os.getpid(),
        node=environment.node(),
        cpus=spec.needs.cpus or environment.cores(),
        host_memory_bytes=spec.needs.host_bytes,
        log=ranks.decisive.log,
    )


def _host_oom_kills() -> int:
    """Processes that the kernel killed for lack of memory since boot; 0 if it is not known."""
    return int(environment.kernel_value("/proc/vmstat", "oom_kill ") or 0)
