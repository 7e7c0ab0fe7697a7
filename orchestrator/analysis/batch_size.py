"""Which batch to train with: the measured sizes of one technique set on one GPU model, and the
answers among them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.flags import Flag, FlagKind, flag_columns, has_any
from jobs.record import Outcome, TrialRecord
from orchestrator.analysis.configuration import MISMATCH
from orchestrator.analysis.recommendation import NearbyBatch
from orchestrator.analysis.repeatability import UNKNOWN_ERROR, speed_error

FILE = "batch_size.json"
"""The answers in the run folder."""
OUT_OF_MEMORY = (Outcome.OUT_OF_MEMORY, Outcome.HOST_OUT_OF_MEMORY)


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchMeasurement:
    """One batch as measured. Bytes and speed are None if the trial did not get that far."""

    micro_batch: int
    accumulation: int
    trial_id: str
    outcome: Outcome
    reason: str
    memory_bytes: int | None
    limit_bytes: float
    """What it may take: the GPU's memory less what was in use before and the margin; infinite
    without a GPU.
    """
    samples_per_second: float | None
    error95: float
    """Half the 95 % interval of the speed relative to it, between-trial variation included.

    Infinite where the speed is not known.
    """
    flags: tuple[Flag, ...]
    slot_seconds: float

    @property
    def fits(self) -> bool:
        """Whether it ran, and within the limit."""
        if self.samples_per_second is None:
            return False
        return (self.memory_bytes or 0) <= self.limit_bytes

    @property
    def speed(self) -> float:
        """Samples per second; 0 where it did not run."""
        return self.samples_per_second or 0.0

    @property
    def trains_wrongly(self) -> bool:
        """Whether its losses contradict those of the same samples without accumulation."""
        return has_any(self.flags, MISMATCH)

    @property
    def is_thrashing(self) -> bool:
        """The allocator had to flush its cache, so the speed is that of a full memory, not of the
        size.
        """
        return has_any(self.flags, frozenset({FlagKind.THRASHING}))

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; infinities as null."""
        return {
            "micro_batch": self.micro_batch,
            "accumulation": self.accumulation,
            "trial_id": self.trial_id,
            "outcome": self.outcome.value,
            "reason": self.reason,
            "fits": self.fits,
            "memory_bytes": self.memory_bytes,
            "samples_per_second": self.samples_per_second,
            "samples_per_second_error95": self.error95 if math.isfinite(self.error95) else None,
            "flags": flag_columns(self.flags)["flags"],
            "slot_seconds": self.slot_seconds,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchSizeAnswer:
    """What is known of the batch of one technique set on one GPU model.

    Every size in it is a trial's record; only ``next_bytes`` is predicted.
    """

    techniques: str
    margin_bytes: int | None
    """Memory kept free; None where there is no GPU."""
    device_bytes: int | None
    tolerance: float
    """Speeds closer than this, relative, count as equal."""
    sizes: tuple[BatchMeasurement, ...]
    """Everything measured, in the order of the micro-batch."""
    effective_batch: int | None
    """The effective batch asked for."""
    max_micro_batch: int
    next_bytes: float | None
    """What one sample more than the largest is predicted to take."""
    granularity: int
    """The largest is known to within so many samples."""
    unfinished: str
    """Why the search did not come to its end; "" where it did."""
    nearby: tuple[NearbyBatch, ...] = ()
    """Effective batches near the one asked for that are much faster; inferred, not measured."""

    @property
    def largest(self) -> BatchMeasurement | None:
        """The largest micro-batch that was seen to fit, whatever its losses are."""
        fitting = [size for size in self.sizes if size.accumulation == 1 and size.fits]
        return max(fitting, key=_micro_batch, default=None)

    @property
    def fastest(self) -> BatchMeasurement | None:
        """The fastest micro-batch."""
        return fastest(self._not_accumulated())

    @property
    def saturation(self) -> BatchMeasurement | None:
        """The smallest micro-batch within the tolerance of the fastest."""
        return saturation(self._not_accumulated(), self.tolerance)

    @property
    def below_saturation(self) -> BatchMeasurement | None:
        """The largest measured micro-batch below the saturation."""
        begin = self.saturation
        if begin is None:
            return None
        below = [size for size in self._not_accumulated() if size.micro_batch < begin.micro_batch]
        return max(below, key=_micro_batch, default=None)

    @property
    def accumulated(self) -> BatchMeasurement | None:
        """The fastest way to the effective batch, of those that train what it asks for."""
        ways = []
        for size in self.sizes:
            is_way = size.micro_batch * size.accumulation == self.effective_batch
            if is_way and size.fits and not size.trains_wrongly:
                ways.append(size)
        return fastest(ways)

    @property
    def left_out(self) -> tuple[BatchMeasurement, ...]:
        """The sizes that fit but train something else; the fastest first. None is an answer."""
        wrong = [size for size in self.sizes if size.fits and size.trains_wrongly]
        return tuple(sorted(wrong, key=_slowest_last))

    @property
    def alignment(self) -> tuple[BatchMeasurement, BatchMeasurement] | None:
        """The largest and the multiple of 8 below it, if the multiple is faster by more than the
        tolerance.
        """
        odd = self.largest
        if odd is None or odd.micro_batch % 8 == 0 or odd.is_thrashing:
            return None
        # Matrix kernels work in tiles of 8 and more; a size that fills them may be faster.
        for aligned in self._not_accumulated():
            is_below = aligned.micro_batch == odd.micro_batch // 8 * 8
            if is_below and aligned.speed > odd.speed * (1 + self.tolerance):
                return odd, aligned
        return None

    @property
    def slot_seconds(self) -> float:
        """Slot time of all trials."""
        return sum(size.slot_seconds for size in self.sizes)

    def _not_accumulated(self) -> list[BatchMeasurement]:
        """The sizes that fit and train what they should."""
        single = [size for size in self.sizes if size.accumulation == 1]
        return [size for size in single if size.fits and not size.trains_wrongly]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; infinities as null."""
        predicted_next_bytes = None
        if self.next_bytes:
            predicted_next_bytes = round(self.next_bytes)
        return {
            "techniques": self.techniques,
            "device_bytes": self.device_bytes,
            "margin_bytes": self.margin_bytes,
            "tolerance": self.tolerance,
            "effective_batch": self.effective_batch,
            "largest": _json_of(self.largest),
            "fastest": _json_of(self.fastest),
            "saturation": _json_of(self.saturation),
            "accumulated": _json_of(self.accumulated),
            "granularity": self.granularity,
            "predicted_next_bytes": predicted_next_bytes,
            "multiples_of_8_matter": self.alignment is not None,
            "left_out": list(map(_json_of, self.left_out)),
            "nearby_effective_batches": list(map(_nearby_json, self.nearby)),
            "sizes": list(map(_json_of, self.sizes)),
            "slot_seconds": self.slot_seconds,
            "unfinished": self.unfinished,
        }


def _json_of(size: BatchMeasurement | None) -> dict[str, Any] | None:
    if size is None:
        return None
    return size.to_json()


def _nearby_json(nearby: NearbyBatch) -> dict[str, Any]:
    candidate = nearby.candidate
    return {
        "effective_batch": nearby.effective_batch,
        "micro_batch": candidate.micro_batch,
        "accumulation": candidate.accumulation,
        "samples_per_second": candidate.configuration.samples_per_second,
        "memory_bytes": candidate.configuration.memory_bytes,
        "inferred": candidate.is_inferred,
    }


def _micro_batch(size: BatchMeasurement) -> int:
    return size.micro_batch


def _speed_then_size(size: BatchMeasurement) -> tuple[float, int]:
    return size.speed, -size.micro_batch


def _slowest_last(size: BatchMeasurement) -> float:
    return -size.speed


def measurement_of(record: TrialRecord, margin: float) -> BatchMeasurement:
    """A trial's batch as measured.

    ``margin`` is the share of the GPU's memory to keep free, or bytes from 1 on.
    """
    measured = record.measurements
    memory = None
    speed = None
    error = UNKNOWN_ERROR
    # What a trial measured before it failed is no figure of a training.
    if record.outcome is Outcome.OK:
        memory = measured.get("device_peak_bytes") or measured.get("peak_allocated_bytes")
        speed = measured.get("samples_per_second")
    if speed:
        batch = {"effective_batch": record.spec.effective_batch, "gpu_model": _gpu_model(record)}
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
        error95=error.half_width95,
        flags=record.flags,
        slot_seconds=record.slot_seconds,
    )


def _gpu_model(record: TrialRecord) -> str | None:
    return record.environment.get("gpu_model")


def _limit_bytes(record: TrialRecord, margin: float) -> float:
    device_bytes = record.environment.get("gpu_memory_bytes")
    if not device_bytes:
        return math.inf
    # Another process's memory was there before the trial, and may be again.
    used_before = record.measurements.get("gpu_used_before_bytes") or 0
    return float(device_bytes - margin_bytes(device_bytes, margin) - used_before)


def margin_bytes(device_bytes: int, margin: float) -> int:
    """The margin in bytes: a share below 1, or bytes."""
    if margin < 1:
        return round(margin * device_bytes)
    return round(margin)


def fastest(sizes: Iterable[BatchMeasurement]) -> BatchMeasurement | None:
    """The fastest; of equals the smaller."""
    return max(sizes, key=_speed_then_size, default=None)


def saturation(sizes: Sequence[BatchMeasurement], tolerance: float) -> BatchMeasurement | None:
    """The smallest whose speed is within the tolerance of the fastest's."""
    best = fastest(sizes)
    if best is None:
        return None
    # Beyond saturation a larger batch takes more memory for no more speed.
    within = [size for size in sizes if size.speed >= (1 - tolerance) * best.speed]
    return min(within, key=_micro_batch)
