"""The batches that were measured so far of one technique set, and what follows from them."""

import math
from collections.abc import Mapping
from typing import NamedTuple

from jobs.record import Outcome, TrialRecord
from orchestrator.analysis.batch_size_answer import OUT_OF_MEMORY, BatchMeasurement, margin_bytes
from orchestrator.analysis.configuration import gpu_memory
from orchestrator.analysis.repeatability import UNKNOWN_ERROR, speed_error

FAILED_BY_ITS_SIZE = (Outcome.OK, *OUT_OF_MEMORY, Outcome.CRASHED)
"""Outcomes of a batch that does not fit, after which a smaller batch may fit."""


Speeds = Mapping[int, float]
"""Micro-batch -> samples per second, as measured without accumulation."""


class Batch(NamedTuple):
    """How a step's samples are split."""

    micro_batch: int
    accumulation: int = 1


class MeasuredSizes(dict[Batch, BatchMeasurement]):
    """Batch -> its measurement, whether it fits or not. A size is a micro-batch without
    accumulation."""

    @property
    def fitting(self) -> dict[int, BatchMeasurement]:
        return {size: own for (size, passes), own in self.items() if passes == 1 and own.fits}

    @property
    def failed(self) -> dict[int, BatchMeasurement]:
        return {size: own for (size, passes), own in self.items() if passes == 1 and not own.fits}

    @property
    def largest(self) -> int:
        """The largest size that fits; 0 if none does."""
        return max(self.fitting, default=0)

    @property
    def speeds(self) -> Speeds:
        """Those of the sizes that fit."""
        return {size: own.speed for size, own in self.fitting.items()}

    @property
    def memory(self) -> dict[int, float]:
        """Bytes of the sizes that ran, within the limit or not."""
        ran = {**self.fitting, **self.failed}
        return {size: float(own.memory_bytes) for size, own in ran.items() if own.memory_bytes}

    def splits_of(self, effective_batch: int) -> dict[Batch, BatchMeasurement]:
        """The batches with this effective batch."""
        return {batch: own for batch, own in self.items() if math.prod(batch) == effective_batch}


def measurement_of(record: TrialRecord, margin: float) -> BatchMeasurement:
    """A trial's batch as measured. ``margin`` is the memory to keep free: below 1 a share of the
    GPU's memory, else bytes."""
    measured = record.measurements
    memory, speed, error = None, None, UNKNOWN_ERROR
    # A trial that failed measured only a part of a training: its figures do not count.
    if record.outcome is Outcome.OK:
        memory = int(gpu_memory(measured)) or None
        speed = measured.get("samples_per_second")
    if speed:
        gpu_model = record.environment.get("gpu_model")
        batch = {"effective_batch": record.spec.effective_batch, "gpu_model": gpu_model}
        error = speed_error([{**measured, **batch}])
    return BatchMeasurement(
        micro_batch=record.spec.micro_batch,
        accumulation=record.spec.accumulation,
        trial_id=record.trial_id,
        outcome=record.outcome,
        reason=record.reason,
        memory_bytes=memory,
        limit_bytes=_limit_bytes(record, margin),
        samples_per_second=speed,
        error95=error.of_another_trial().half_width95,
        flags=record.flags,
        slot_seconds=record.slot_seconds,
    )


def _limit_bytes(record: TrialRecord, margin: float) -> float:
    device_bytes = record.environment.get("gpu_memory_bytes")
    if not device_bytes:
        return math.inf
    # Memory that other processes used before the trial may be in use again later.
    used_before = record.measurements.get("gpu_used_before_bytes") or 0
    return float(device_bytes - margin_bytes(device_bytes, margin) - used_before)
