"""One GPU's slot: runs trials while the GPU is fit, and watches the GPU while it is not."""

import dataclasses
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from jobs.flags import SHARED, has_any
from jobs.infrastructure import NOT_STARTED, SLOT_UNRESPONSIVE, unmeasured
from jobs.isolation.slot import Slot, SlotDiedError
from jobs.node import environment, gpu_fitness, nvml
from jobs.record import Outcome, TrialRecord, with_provenance
from jobs.spec import TrialSpec
from orchestrator.reporting.terminal.safe_text import shortened
from orchestrator.running.cluster.messages import Assignment, GpuProblem, UnhealthyGpu

INFRASTRUCTURE_RETRIES = 2
"""How often a trial may lose its slot or share its GPU, and how often lose its actor or node."""
RELEASE_SECONDS = 10.0
"""How long to wait until other processes, such as killed ones, free their GPU memory."""
OWN_RELEASE_SECONDS = 120.0
"""How much longer to wait, at most, for our own processes that are ending."""
_RAY_KILLED_FOR_MEMORY = ("OutOfMemoryError", "memory pressure", "low on memory")
"""Words of Ray's message about a worker that it killed to free the host's memory."""
_CUDA_ERROR = re.compile("CUDA|cuBLAS|cuDNN", re.IGNORECASE)


class GpuProbe:
    """Checks of the visible GPU. Each returns why the GPU is unhealthy, or "" if it is fit."""

    session = staticmethod(nvml.session)
    """Keeps NVML initialised. Without it, each check initialises NVML anew."""
    lost = staticmethod(gpu_fitness.lost)
    dead = staticmethod(gpu_fitness.dead)
    shared = staticmethod(gpu_fitness.shared)

    def gpu_model(self) -> str:
        return str(environment.describe()["gpu_model"] or "")


class GpuSlot:
    """Runs the trials that it is assigned, one per step. If the GPU turns out unhealthy, the driver
    requeues the trials, and further steps only check whether it is fit again."""

    def __init__(
        self,
        probe: GpuProbe,
        make_slot: Callable[[int], Slot] = Slot,
        *,
        release_seconds: float = RELEASE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._probe = probe
        self._make_slot = make_slot
        self._release_seconds = release_seconds
        self._clock = clock
        self._sleep = sleep
        self._slot: Slot | None = None
        self._was_shared = False
        """Whether other processes used the GPU during the last trial."""
        self._has_met_lengths = False
        """Whether a trial on rows of unequal length has run on this GPU."""
        self._assignment = Assignment(specs=(), seconds_left=0.0, may_share=False, gpu_model="")
        self._steps_done = 0
        self._ends_at = 0.0
        self._unhealthy: UnhealthyGpu | None = None

    def assign(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._steps_done = 0
        self._ends_at = self._clock() + assignment.seconds_left
        self._unhealthy = None

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do: every trial has run, or the GPU is fit again."""
        if self._unhealthy is not None:
            return not self._unhealthy.reason
        return self._steps_done >= len(self._assignment.specs)

    def step(self) -> TrialRecord | UnhealthyGpu | None:
        """Run the next trial, or check the unhealthy GPU again. None if there is nothing to run."""
        if self._unhealthy is not None:
            self._sleep(2.0)  # between two checks of an unhealthy GPU
            self._unhealthy = dataclasses.replace(self._unhealthy, reason=self._current_reason())
            return self._unhealthy
        if self.is_done:
            return None
        spec = self._assignment.specs[self._steps_done]
        self._steps_done += 1
        result = self._measure(spec)
        if isinstance(result, UnhealthyGpu):
            self._unhealthy = result
        return result

    def close(self) -> None:
        if self._slot is not None:
            self._slot.close()

    def _measure(self, spec: TrialSpec) -> TrialRecord | UnhealthyGpu:
        # Lost slots and other processes on the GPU are no fault of the trial, so it runs again.
        record = None
        deaths: list[SlotDiedError] = []
        for _ in range(INFRASTRUCTURE_RETRIES):
            unhealthy = self._check_before()
            if unhealthy is not None:
                return unhealthy
            try:
                record = _with_earlier_attempt(record, self._run(spec))
            except SlotDiedError as error:
                deaths.append(error)
                continue
            if not self._should_repeat(record):
                break
        if record is None:
            reason = f"{deaths[-1]}, {INFRASTRUCTURE_RETRIES} times"
            where = environment.describe()
            rules = [death.rule for death in deaths if death.rule]
            record = crashed(spec, reason, where)
            if rules:
                record = unmeasured(spec, rules[0], reason, environment=where)
        return self._check_after(record) or record

    def _run(self, spec: TrialSpec) -> TrialRecord:
        if self._slot is None:
            self._slot = self._make_slot(spec.needs.cpus)
        # Even without time left, a started trial gets one second, and then times out as usual.
        seconds_left = max(1.0, self._ends_at - self._clock())
        return self._slot.run(spec, min(spec.measure.timeout_seconds, seconds_left))

    def _should_repeat(self, record: TrialRecord) -> bool:
        """Whether other processes disturbed the trial, and a second attempt may be undisturbed.
        After two disturbed trials in a row they will probably stay, and every repetition would
        double the time."""
        was_shared = self._was_shared
        has_met_lengths = self._has_met_lengths or not self._assignment.gpu_model
        self._was_shared = has_any(record.flags, SHARED)
        has_time = self._ends_at - self._clock() > record.slot_seconds
        if record.measurements.get("new_shapes_share") is not None:
            self._has_met_lengths = True
            # On a fresh machine, what prepares kernels for a new length is loaded by the first
            # trial, which was up to eight times slower than the next ones.
            if not has_met_lengths and has_time:
                return True
        if was_shared or not self._was_shared or not has_time:
            return False
        if not self._assignment.may_share:
            return True
        with self._probe.session():
            return not self._shared_persistently()

    def _check_before(self) -> UnhealthyGpu | None:
        may_share = self._assignment.may_share
        with self._probe.session():
            if reason := self._probe.lost():
                return self._found_unhealthy(GpuProblem.LOST, reason)
            gpu_model = self._probe.gpu_model()
            if gpu_model and gpu_model != self._assignment.gpu_model:
                return self._found_unhealthy(
                    GpuProblem.OTHER_MODEL, f"it is a {gpu_model}", gpu_model
                )
            # A shared GPU's slot waits for other processes to leave before its first trial only.
            reason = "" if may_share and self._slot is not None else self._shared_persistently()
            if reason and not may_share:
                return self._found_unhealthy(GpuProblem.SHARED, reason)
        return None

    def _check_after(self, record: TrialRecord) -> UnhealthyGpu | None:
        """Why the GPU is unhealthy. None if it is fit, or if the trial ended in another way."""
        if _may_blame_gpu(record):
            if reason := self._probe.lost():
                return self._found_unhealthy(GpuProblem.LOST, reason)
            if reason := self._probe.dead():
                return self._found_unhealthy(GpuProblem.DEAD, reason)
        return None

    def _found_unhealthy(
        self, problem: GpuProblem, reason: str, found_model: str = ""
    ) -> UnhealthyGpu:
        return UnhealthyGpu(
            problem=problem,
            reason=reason,
            planned_model=self._assignment.gpu_model,
            found_model=found_model,
        )

    def _current_reason(self) -> str:
        assert self._unhealthy is not None
        match self._unhealthy.problem:
            case GpuProblem.LOST:
                return self._probe.lost()
            case GpuProblem.SHARED:
                return self._shared()
        return self._unhealthy.reason  # a dead GPU, or one of another model, does not become fit

    def _shared_persistently(self) -> str:
        """Which other processes use the GPU and do not leave soon; empty if there are none."""
        give_up_at = self._clock() + self._release_seconds
        while True:
            reason = self._shared()
            # One of our own processes may wait for the next trial. Others are ending and hold
            # memory, so they get more time, with a limit because a hung driver may never free it.
            allowed = OWN_RELEASE_SECONDS if self._own_processes > 1 else 0.0
            if not reason or self._clock() >= give_up_at + allowed:
                return reason
            self._sleep(0.02)

    def _shared(self) -> str:
        return self._probe.shared(waiting=min(1, self._own_processes))

    @property
    def _own_processes(self) -> int:
        """Of our processes, those that use the GPU or used it a moment ago."""
        return 0 if self._slot is None else self._slot.children


def crashed(spec: TrialSpec, reason: str, where: Mapping[str, Any]) -> TrialRecord:
    """The record of a trial that was lost with its slot, its actor or its node."""
    # Ray's memory monitor kills a worker before the kernel would.
    is_full = any(words in reason for words in _RAY_KILLED_FOR_MEMORY)
    outcome = Outcome.HOST_OUT_OF_MEMORY if is_full else Outcome.CRASHED
    why = shortened(reason.partition(". ")[0])
    record = TrialRecord(spec=spec, outcome=outcome, reason=why, environment=where)
    return with_provenance(record, started_at=time.time())


def _with_earlier_attempt(earlier: TrialRecord | None, record: TrialRecord) -> TrialRecord:
    """The record of the last attempt, with the first attempt's start and the time of both."""
    if earlier is None:
        return record
    # Both attempts took time in the slot, so the search is charged for both.
    seconds = earlier.slot_seconds + record.slot_seconds
    return with_provenance(record, started_at=earlier.started_at, slot_seconds=seconds)


def _may_blame_gpu(record: TrialRecord) -> bool:
    if record.outcome in (Outcome.CRASHED, Outcome.TIMED_OUT):
        return True
    if record.rule in (NOT_STARTED, SLOT_UNRESPONSIVE):
        return True
    text = f"{record.reason} {record.provenance.log}"
    return record.outcome is Outcome.FAILED and _CUDA_ERROR.search(text) is not None
