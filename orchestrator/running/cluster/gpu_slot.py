"""One GPU's slot: it runs trials while the GPU is fit, and watches the GPU while it is not."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from jobs.flags import SHARED, has_any
from jobs.infrastructure import NOT_STARTED, SLOT_UNRESPONSIVE, unmeasured
from jobs.isolation.slot import Slot, SlotDiedError
from jobs.node import cuda_probe, environment, nvml
from jobs.record import Outcome, TrialRecord, delivered
from jobs.spec import TrialSpec
from orchestrator.reporting.terminal.shortening import shortened
from orchestrator.running.cluster.messages import Assignment, GpuProblem, UnfitGpu

INFRASTRUCTURE_RETRIES = 2
"""How often a trial is begun again that lost its slot, actor or node, or that shared its GPU."""
RELEASE_SECONDS = 10.0
"""How long to wait for memory that another process holds. Some processes leave soon, and the
driver takes a moment to free the memory of a killed one."""
OWN_RELEASE_SECONDS = 120.0
"""How much longer to wait for the memory of our own processes that are ending."""
WATCH_SECONDS = 2.0
"""Between two looks at an unfit GPU."""
_POLL_SECONDS = 0.02
_REASON_CHARACTERS = 300
_RAY_KILLED_FOR_MEMORY = ("OutOfMemoryError", "memory pressure", "low on memory")
"""Words of Ray's message about a worker that it killed to free the host's memory."""
_CUDA_ERROR = re.compile("CUDA|cuBLAS|cuDNN", re.IGNORECASE)


class GpuProbe:
    """Questions about the visible GPU. An answer is why the GPU is unfit; empty: it is fit."""

    def session(self) -> contextlib.AbstractContextManager[object]:
        """Keeps NVML initialised, which every question would otherwise do for itself."""
        return nvml.session()

    def lost(self) -> str:
        """Why the GPU does not answer NVML."""
        return nvml.lost()

    def dead(self) -> str:
        """Why CUDA cannot compute on the GPU. Asks in a process of its own, which takes seconds."""
        return cuda_probe.dead()

    def shared(self, own_processes: int) -> str:
        """Which other processes use the GPU, besides ``own_processes`` of ours that wait on it."""
        return nvml.shared(waiting=own_processes)

    def gpu_model(self) -> str:
        """The GPU's model; empty without a GPU."""
        return str(environment.describe()["gpu_model"] or "")


class TrialSlot(Protocol):
    """What is used of ``jobs.isolation.slot.Slot``."""

    @property
    def children(self) -> int: ...

    def run(self, spec: TrialSpec, timeout_seconds: float) -> TrialRecord: ...

    def close(self) -> None: ...


class GpuSlot:
    """Runs what it is assigned, one trial per step.

    A GPU that turns out unfit gives its trials back: the step returns an ``UnfitGpu``. Further
    steps only look whether it is fit again.
    """

    def __init__(
        self,
        probe: GpuProbe,
        make_slot: Callable[[int], TrialSlot] = Slot,
        *,
        release_seconds: float = RELEASE_SECONDS,
        watch_seconds: float = WATCH_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._probe = probe
        self._make_slot = make_slot
        self._release_seconds = release_seconds
        self._watch_seconds = watch_seconds
        self._clock = clock
        self._sleep = sleep
        self._slot: TrialSlot | None = None
        self._was_shared = False
        """Whether other processes used the GPU during the last trial."""
        self._assignment = Assignment(specs=(), seconds_left=0.0, may_share=False, gpu_model="")
        self._steps_done = 0
        self._ends_at = 0.0
        self._unfit: UnfitGpu | None = None

    def assign(self, assignment: Assignment) -> None:
        """Take over what to run in the next steps."""
        self._assignment = assignment
        self._steps_done = 0
        self._ends_at = self._clock() + assignment.seconds_left
        self._unfit = None

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do: every trial has run, or the GPU is fit again."""
        if self._unfit is not None:
            return not self._unfit.reason
        return self._steps_done >= len(self._assignment.specs)

    def step(self) -> TrialRecord | UnfitGpu | None:
        """Run the next trial, or look after the unfit GPU. None: there is nothing to run."""
        if self._unfit is not None:
            self._sleep(self._watch_seconds)
            self._unfit = dataclasses.replace(self._unfit, reason=self._reason_still())
            return self._unfit
        if self.is_done:
            return None
        spec = self._assignment.specs[self._steps_done]
        self._steps_done += 1
        result = self._measure(spec)
        if isinstance(result, UnfitGpu):
            self._unfit = result
        return result

    def close(self) -> None:
        """End the slot's processes."""
        if self._slot is not None:
            self._slot.close()

    def _measure(self, spec: TrialSpec) -> TrialRecord | UnfitGpu:
        """The trial's record, or why the GPU cannot run it."""
        # Lost slots and other processes on the GPU are no fault of the trial, so it runs again.
        record = None
        death = ""
        rule = ""
        for _ in range(INFRASTRUCTURE_RETRIES):
            unfit = self._check_before()
            if unfit is not None:
                return unfit
            try:
                record = _with_earlier_attempt(record, self._run(spec))
            except SlotDiedError as error:
                death = str(error)
                rule = rule or error.rule
                continue
            if not self._should_repeat(record):
                break
        if record is None:
            reason = f"{death}, {INFRASTRUCTURE_RETRIES} times"
            if rule:
                record = unmeasured(spec, rule, reason, environment=environment.describe())
            else:
                record = crashed(spec, reason, environment.describe())
        return self._check_after(record) or record

    def _run(self, spec: TrialSpec) -> TrialRecord:
        if self._slot is None:
            self._slot = self._make_slot(spec.needs.cpus)
        # A trial that was begun gets a second at least, so that it ends with an outcome.
        seconds_left = max(1.0, self._ends_at - self._clock())
        return self._slot.run(spec, min(spec.measure.timeout_seconds, seconds_left))

    def _should_repeat(self, record: TrialRecord) -> bool:
        """Whether other processes came onto the GPU during the trial, which disturbs all of it,
        and a second attempt may be undisturbed.

        It may if they have left again, or if the trial can go to another GPU. If they were there
        during the trial before, too, they stay: to repeat every trial would double the sweep.
        """
        # Two disturbed trials in a row mean that the other processes stay.
        was_shared = self._was_shared
        self._was_shared = has_any(record.flags, SHARED)
        has_time = self._ends_at - self._clock() > record.slot_seconds
        if was_shared or not self._was_shared or not has_time:
            return False
        if not self._assignment.may_share:
            return True
        with self._probe.session():
            return not self._shared_for_good()

    def _check_before(self) -> UnfitGpu | None:
        """What speaks against beginning a trial on the GPU."""
        with self._probe.session():
            reason = self._probe.lost()
            if reason:
                return self._found_unfit(GpuProblem.LOST, reason)
            gpu_model = self._probe.gpu_model()
            if gpu_model and gpu_model != self._assignment.gpu_model:
                return UnfitGpu(
                    problem=GpuProblem.OTHER_MODEL,
                    reason=f"it is a {gpu_model}",
                    planned_model=self._assignment.gpu_model,
                    found_model=gpu_model,
                )
            may_share = self._assignment.may_share
            if may_share and self._slot is not None:
                return None  # known to be shared, so there is nothing to wait for
            reason = self._shared_for_good()
            if reason and not may_share:
                return self._found_unfit(GpuProblem.SHARED, reason)
        return None

    def _check_after(self, record: TrialRecord) -> UnfitGpu | None:
        """What is wrong with the GPU, if that may be the cause of the trial's end."""
        if not _may_blame_gpu(record):
            return None
        reason = self._probe.lost()
        if reason:
            return self._found_unfit(GpuProblem.LOST, reason)
        reason = self._probe.dead()
        if reason:
            return self._found_unfit(GpuProblem.DEAD, reason)
        return None

    def _found_unfit(self, problem: GpuProblem, reason: str) -> UnfitGpu:
        planned = self._assignment.gpu_model
        return UnfitGpu(problem=problem, reason=reason, planned_model=planned)

    def _reason_still(self) -> str:
        """Why the unfit GPU still is; empty once it is fit again."""
        assert self._unfit is not None
        if self._unfit.problem is GpuProblem.LOST:
            return self._probe.lost()
        if self._unfit.problem is GpuProblem.SHARED:
            return self._shared()
        return self._unfit.reason  # its node has to be replaced

    def _shared_for_good(self) -> str:
        """Which other processes use the GPU and do not leave soon; empty if there are none."""
        give_up_at = self._clock() + self._release_seconds
        while True:
            reason = self._shared()
            # Of our own processes one may wait. Others are ending, and still hold memory. They are
            # waited for longer, but not without end: a hung driver may never let them go.
            seconds_over = self._clock() - give_up_at
            only_others = seconds_over >= 0 and self._own_processes <= 1
            if not reason or only_others or seconds_over >= OWN_RELEASE_SECONDS:
                return reason
            self._sleep(_POLL_SECONDS)

    def _shared(self) -> str:
        return self._probe.shared(min(1, self._own_processes))

    @property
    def _own_processes(self) -> int:
        if self._slot is None:
            return 0
        return self._slot.children


def crashed(spec: TrialSpec, reason: str, where: Mapping[str, Any]) -> TrialRecord:
    """The record of a trial that was lost with its slot, its actor or its node."""
    outcome = Outcome.CRASHED
    # Ray's memory monitor kills a worker before the kernel would.
    if any(words in reason for words in _RAY_KILLED_FOR_MEMORY):
        outcome = Outcome.HOST_OUT_OF_MEMORY
    return delivered(
        TrialRecord(
            spec=spec,
            outcome=outcome,
            reason=shortened(reason.partition(". ")[0], _REASON_CHARACTERS),
            environment=where,
        ),
        started_at=time.time(),
    )


def _with_earlier_attempt(earlier: TrialRecord | None, record: TrialRecord) -> TrialRecord:
    """The record of the last attempt, which started with the first and cost the time of both."""
    if earlier is None:
        return record
    # Both attempts took slot time; the search pays for both.
    seconds = earlier.slot_seconds + record.slot_seconds
    return delivered(record, started_at=earlier.started_at, slot_seconds=seconds)


def _may_blame_gpu(record: TrialRecord) -> bool:
    """Whether the trial ended in a way that an ill GPU could explain."""
    if record.outcome in (Outcome.CRASHED, Outcome.TIMED_OUT):
        return True
    if record.rule in (NOT_STARTED, SLOT_UNRESPONSIVE):
        return True
    said = f"{record.reason} {record.delivery.log}"
    return record.outcome is Outcome.FAILED and _CUDA_ERROR.search(said) is not None
