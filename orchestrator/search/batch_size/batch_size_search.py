"""The batch-size search: asks for one batch after another until its questions are answered.

The questions are: What is the largest micro-batch that fits? Which is the fastest? Where does the
speed saturate? How is an effective batch reached fastest? Each trial is chosen after the one before
has ended. All answers are measured batches.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from jobs.infrastructure import RULES as INFRASTRUCTURE_RULES
from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec
from orchestrator.analysis.batch_size_answer import BatchSizeResult, advised, margin_bytes
from orchestrator.search.base import Search
from orchestrator.search.batch_size.accumulation import pass_seconds, promising_split
from orchestrator.search.batch_size.fastest_size import near_fastest, near_saturation
from orchestrator.search.batch_size.largest_size import LargestSize
from orchestrator.search.batch_size.measured_sizes import (
    FAILED_BY_ITS_SIZE,
    Batch,
    MeasuredSizes,
    measurement_of,
)
from orchestrator.search.model.cost_line import CostLine

MakeTrial = Callable[[int, int], TrialSpec | TrialRecord]
"""Makes the trial of a micro-batch and an accumulation, or the record of why it cannot run."""

_COUNTED_SECONDS = 2.0
"""The counted steps of a trial take about this long."""
_MIN_STEPS = 2
"""Fewest counted steps: memory peaks in the second step, when the optimizer has its states."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchSizeGoal:
    """What to find for each technique set."""

    effective_batch: int | None = None
    """Samples per optimizer step, to be reached by accumulation."""
    memory_margin: float = 0.05
    """GPU memory to keep free: a share below 1, or bytes."""
    tolerance: float = 0.02
    """Relative difference of two speeds that still counts as equal."""
    max_micro_batch: int | None = None
    """The largest micro-batch to try. None: 512, or 64 without a GPU."""
    exact: bool = False
    """Find the exact largest size. Otherwise sizes of 64 and more are found approximately."""

    def largest_size(self, *, has_gpu: bool) -> int:
        return self.max_micro_batch or (512 if has_gpu else 64)


class BatchSizeSearch(Search):
    """Tunes the batch of one technique set on one GPU model. Trials run one at a time, and no batch
    runs twice. Unless a device's memory limits the size, every size fits until it fails."""

    def __init__(
        self,
        make: MakeTrial,
        goal: BatchSizeGoal | None = None,
        *,
        techniques: str = "",
        limited: bool = True,
    ) -> None:
        self._make = make
        self._goal = goal = goal or BatchSizeGoal()
        self._techniques = techniques
        largest = goal.largest_size(has_gpu=limited)
        self._largest = LargestSize(max_micro_batch=largest, is_limited=limited, exact=goal.exact)
        self._sizes = MeasuredSizes()
        self._records: dict[Batch, TrialRecord] = {}
        self._ruled_out: dict[Batch, TrialRecord] = {}
        """Batches that can have no trial."""
        self._machine_failure = ""
        """The rule and reason of a trial that the machine failed; "" if there was none."""
        self._outstanding: set[str] = set()
        """Ids of trials that were asked for and have no record yet."""

    def ask(self) -> TrialSpec | None:
        trial = self._next_trial()
        if trial is not None:
            self._outstanding.add(trial.trial_id)
        return trial

    def tell(self, record: TrialRecord) -> None:
        """Take the record of a trial of this search. A trial that the machine failed says nothing
        about its size, so the search ends there, and a resumed run repeats the trial."""
        batch = Batch(record.spec.micro_batch, record.spec.accumulation)
        was_outstanding = record.trial_id in self._outstanding
        if not was_outstanding and (batch in self._records or not self.knows(record.spec)):
            return
        self._outstanding.discard(record.trial_id)
        if record.rule in INFRASTRUCTURE_RULES:
            self._machine_failure = f"{record.rule}: {record.reason}; --resume repeats the trial"
            return
        self._records[batch] = record
        self._sizes[batch] = measurement_of(record, self._goal.memory_margin)

    @property
    def exhausted(self) -> bool:
        return not self._outstanding and self._next_trial() is None

    def skipped(self) -> Iterable[TrialRecord]:
        """The records of batches that can have no trial."""
        return tuple(self._ruled_out.values())

    def pending(self) -> Iterable[TrialSpec]:
        # The next batch is decided only when it is asked for.
        return ()

    def knows(self, spec: TrialSpec) -> bool:
        """Whether this search could ask for the trial, whatever its number of counted steps."""
        made = self._make(spec.micro_batch, spec.accumulation)
        if not isinstance(made, TrialSpec):
            return False
        return _with_steps(made, spec.measure.steps).trial_id == spec.trial_id

    @property
    def answer(self) -> BatchSizeResult:
        """The answers that are known so far."""
        # The margin is known once a record gives the memory of the device.
        environments = [record.environment for record in self._records.values()]
        device_bytes = next(filter(None, environments), {}).get("gpu_memory_bytes")
        margin = margin_bytes(device_bytes, self._goal.memory_margin) if device_bytes else None
        measured = BatchSizeResult(
            techniques=self._techniques,
            device_bytes=device_bytes,
            margin_bytes=margin,
            tolerance=self._goal.tolerance,
            sizes=tuple(self._sizes[batch] for batch in sorted(self._sizes)),
            effective_batch=self._goal.effective_batch,
            max_micro_batch=self._largest.max_micro_batch,
            next_bytes=self._bytes_of_next(),
            granularity=self._largest.granularity(self._sizes.largest),
            unfinished=self._why_unfinished(),
        )
        return advised(measured, tuple(self._records.values()))

    def _next_trial(self) -> TrialSpec | None:
        """The trial of the next batch that a rule wants. Batches that cannot have one are ruled
        out."""
        while not self._outstanding and not self._why_ended_early():
            batch = next((batch for batch in self._wanted() if batch not in self._sizes), None)
            if batch is None:
                return None
            made = self._make(*batch)
            if isinstance(made, TrialSpec):
                return _with_steps(made, self._steps(batch))
            self._ruled_out[batch] = made
            self._sizes[batch] = measurement_of(made, self._goal.memory_margin)
        return None

    def _wanted(self) -> Iterator[Batch]:
        """The batches that the rules ask for, some of which may be measured already."""
        sizes, tolerance = self._sizes, self._goal.tolerance
        yield from map(Batch, self._largest.wanted(sizes))
        if self._goal.effective_batch is not None:
            yield from promising_split(sizes, self._goal.effective_batch, tolerance)
        # The rules about speed come last, because they can use what the effective batch measured
        # without accumulation.
        yield from map(Batch, near_fastest(sizes, tolerance))
        yield from map(Batch, near_saturation(sizes, tolerance))

    def _steps(self, batch: Batch) -> int | None:
        """Steps that are predicted to take ``_COUNTED_SECONDS``; None if no speed is known."""
        speeds = self._sizes.speeds
        if not speeds:
            return None
        # Predict one full pass per micro-batch. This ignores that the optimizer runs only once.
        seconds = batch.accumulation * pass_seconds(speeds, batch.micro_batch)
        return max(_MIN_STEPS, math.ceil(_COUNTED_SECONDS / seconds))

    def _why_ended_early(self) -> str:
        """Why nothing more is asked for, although questions are open; "" if the search goes on."""
        failed = self._sizes.failed
        if self._machine_failure or self._sizes.fitting or not failed:
            return self._machine_failure
        # It is hopeless if the smallest size failed for a reason that does not depend on the size.
        smallest = failed[min(failed)]
        if smallest.outcome in (*FAILED_BY_ITS_SIZE, Outcome.TIMED_OUT):
            return ""
        return f"{smallest.outcome.value}: {smallest.reason}"

    def _why_unfinished(self) -> str:
        ended_early = self._why_ended_early()
        if ended_early or self.exhausted:
            return ended_early
        return "it was ended before its last trial"

    def _bytes_of_next(self) -> float | None:
        """Predicted memory with one sample more than the largest size that fits, if any is."""
        memory, largest = self._sizes.memory, self._sizes.largest
        is_known = largest and len(memory) > 1
        return float(CostLine.of(memory).at(largest + 1)) if is_known else None


def _with_steps(spec: TrialSpec, steps: int | None) -> TrialSpec:
    """The trial with at most this many counted steps; None: as it is."""
    limit = spec.measure.steps
    if steps is None or limit is None or steps >= limit:
        return spec
    return replace(spec, measure=replace(spec.measure, steps=steps))
