"""Which batch to train with: the sizes measured for one technique set on one GPU model."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from operator import attrgetter
from typing import Any

from jobs.flags import LOSS, Flag, FlagKind, flag_columns, flags_of, has_any
from jobs.record import Outcome, TrialRecord
from orchestrator.analysis.configuration import MISMATCH
from orchestrator.analysis.dataset import Dataset, dataset_of_records
from orchestrator.analysis.recommendation import Alternative, Constraints, recommend
from orchestrator.storage.run_metadata import RunMetadata

FILE = "batch_size.json"
"""The file of the run folder that holds the answers."""
OUT_OF_MEMORY = (Outcome.OUT_OF_MEMORY, Outcome.HOST_OUT_OF_MEMORY)


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchMeasurement:
    """One batch as measured. Bytes and speed are None unless the trial ended ok."""

    micro_batch: int
    accumulation: int
    trial_id: str
    outcome: Outcome
    reason: str
    memory_bytes: int | None
    limit_bytes: float
    """The GPU's memory minus what was in use before and the margin; infinite without a GPU."""
    samples_per_second: float | None
    error95: float
    """Half the 95 % interval of the speed of a trial, as a share of it; infinite if not known."""
    flags: tuple[Flag, ...]
    slot_seconds: float

    @property
    def fits(self) -> bool:
        """Whether the trial ended ok and stayed within the limit."""
        is_ok = self.samples_per_second is not None
        return is_ok and (self.memory_bytes or 0) <= self.limit_bytes

    @property
    def is_usable(self) -> bool:
        """Whether it fits and trains correctly."""
        return self.fits and not self.trains_wrongly

    @property
    def speed(self) -> float:
        """Samples per second; 0 if the trial did not end ok."""
        return self.samples_per_second or 0.0

    @property
    def trains_wrongly(self) -> bool:
        """Whether its losses contradict those of the trial that it was compared with."""
        return has_any(self.flags, MISMATCH)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; infinities as null."""
        raw = asdict(self)
        del raw["limit_bytes"]
        error95 = raw.pop("error95")
        return {
            **raw,
            "outcome": self.outcome.value,
            "fits": self.fits,
            "samples_per_second_error95": error95 if math.isfinite(error95) else None,
            "flags": flag_columns(self.flags)["flags"],
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchSizeResult:
    """The answers for one technique set on one GPU model."""

    techniques: str
    margin_bytes: int | None
    """Memory to keep free; None without a GPU."""
    device_bytes: int | None
    tolerance: float
    """Relative difference of two speeds that still counts as equal."""
    sizes: tuple[BatchMeasurement, ...]
    """Everything measured, in the order of the micro-batch."""
    effective_batch: int | None
    max_micro_batch: int
    next_bytes: float | None
    """Predicted memory of a micro-batch one sample larger than the largest that fits."""
    granularity: int
    """The true largest micro-batch is less than this many samples above the one found."""
    unfinished: str
    """Why the search ended early; "" if it ran to its end."""
    nearby: tuple[Alternative, ...] = ()
    """Effective batches near the one asked for that are much faster; inferred, not measured."""

    @property
    def largest(self) -> BatchMeasurement | None:
        """The largest micro-batch that fits, even if its losses are wrong."""
        fitting = [size for size in self.sizes if size.accumulation == 1 and size.fits]
        return max(fitting, key=attrgetter("micro_batch"), default=None)

    @property
    def fastest(self) -> BatchMeasurement | None:
        """The fastest micro-batch that fits and trains correctly."""
        return fastest(self._usable)

    @property
    def saturation(self) -> BatchMeasurement | None:
        """The smallest micro-batch within the tolerance of the fastest."""
        return saturation(self._usable, self.tolerance)

    @property
    def below_saturation(self) -> BatchMeasurement | None:
        """The largest measured micro-batch below the saturation."""
        limit = 0 if self.saturation is None else self.saturation.micro_batch
        below = [size for size in self._usable if size.micro_batch < limit]
        return max(below, key=attrgetter("micro_batch"), default=None)

    @property
    def accumulated(self) -> BatchMeasurement | None:
        """The fastest split of the wanted effective batch that fits and trains correctly."""
        wanted = self.effective_batch
        splits = [each for each in self.sizes if each.micro_batch * each.accumulation == wanted]
        return fastest(each for each in splits if each.is_usable)

    @property
    def left_out(self) -> tuple[BatchMeasurement, ...]:
        """The sizes that fit but have wrong losses, the fastest first. No answer names them."""
        wrong = [size for size in self.sizes if size.fits and size.trains_wrongly]
        return tuple(sorted(wrong, key=lambda size: -size.speed))

    @property
    def alignment(self) -> tuple[BatchMeasurement, BatchMeasurement] | None:
        """The largest size and the multiple of 8 below it, if it is faster by the tolerance."""
        largest = self.largest
        # The full memory slows a trial whose allocator had to flush its cache.
        if largest is None or has_any(largest.flags, frozenset({FlagKind.THRASHING})):
            return None
        # Matrix kernels work in tiles of 8 and more; a size that fills them may be faster.
        multiple_below = largest.micro_batch // 8 * 8
        aligned = next((size for size in self._usable if size.micro_batch == multiple_below), None)
        if aligned is None or aligned.speed <= largest.speed * (1 + self.tolerance):
            return None
        return largest, aligned

    @property
    def slot_seconds(self) -> float:
        return sum(size.slot_seconds for size in self.sizes)

    @property
    def _usable(self) -> list[BatchMeasurement]:
        """The sizes without accumulation that fit and train correctly."""
        return [size for size in self.sizes if size.accumulation == 1 and size.is_usable]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; infinities as null."""
        answers = ("largest", "fastest", "saturation", "accumulated")
        return {
            "techniques": self.techniques,
            "device_bytes": self.device_bytes,
            "margin_bytes": self.margin_bytes,
            "tolerance": self.tolerance,
            "effective_batch": self.effective_batch,
            **{name: (size := getattr(self, name)) and size.to_json() for name in answers},
            "granularity": self.granularity,
            "predicted_next_bytes": round(self.next_bytes) if self.next_bytes else None,
            "multiples_of_8_matter": self.alignment is not None,
            "left_out": [size.to_json() for size in self.left_out],
            "nearby_effective_batches": [
                {
                    "effective_batch": nearby.effective_batch,
                    "micro_batch": nearby.candidate.micro_batch,
                    "accumulation": nearby.candidate.accumulation,
                    "samples_per_second": nearby.candidate.configuration.samples_per_second,
                    "memory_bytes": nearby.candidate.memory_bytes,
                    "inferred": nearby.candidate.is_inferred,
                }
                for nearby in self.nearby
            ],
            "sizes": [size.to_json() for size in self.sizes],
            "slot_seconds": self.slot_seconds,
            "unfinished": self.unfinished,
        }


def margin_bytes(device_bytes: int, margin: float) -> int:
    """The margin in bytes. Below 1 ``margin`` is a share of the GPU's memory, else bytes."""
    return round(margin * device_bytes) if margin < 1 else round(margin)


def fastest(sizes: Iterable[BatchMeasurement]) -> BatchMeasurement | None:
    """The fastest size. If two are equally fast, the smaller."""
    return max(sizes, key=lambda size: (size.speed, -size.micro_batch), default=None)


def saturation(sizes: Sequence[BatchMeasurement], tolerance: float) -> BatchMeasurement | None:
    """The smallest size that is as fast as the fastest one, within the tolerance."""
    best = fastest(sizes)
    if best is None:
        return None
    # Beyond saturation a larger batch takes more memory for no more speed.
    within = [size for size in sizes if size.speed >= (1 - tolerance) * best.speed]
    return min(within, key=attrgetter("micro_batch"))


def advised(answer: BatchSizeResult, records: Sequence[TrialRecord]) -> BatchSizeResult:
    """The answer with the losses of the search's trials checked, and with faster batches nearby."""
    dataset = dataset_of_records(records, RunMetadata())
    checked = replace(answer, sizes=tuple(_checked(size, dataset) for size in answer.sizes))
    return replace(checked, nearby=_nearby(checked, dataset))


def _checked(size: BatchMeasurement, dataset: Dataset) -> BatchMeasurement:
    of_trial = [flags_of(row) for row in dataset.rows if row["trial_id"] == size.trial_id]
    losses = [flag for flags in of_trial for flag in flags if flag.kind in LOSS]
    return replace(size, flags=tuple(dict.fromkeys([*size.flags, *losses])))


def _nearby(answer: BatchSizeResult, dataset: Dataset) -> tuple[Alternative, ...]:
    if answer.effective_batch is None or dataset.main is None:
        return ()
    # Limits differ if other processes used the GPU during some trials. The smallest is safe.
    limit = min((size.limit_bytes for size in answer.sizes), default=math.inf)
    memory_bytes = int(limit) if math.isfinite(limit) else None
    constraints = Constraints(memory_bytes=memory_bytes, effective_batch=answer.effective_batch)
    return recommend(dataset.main.rankings, constraints).nearby
