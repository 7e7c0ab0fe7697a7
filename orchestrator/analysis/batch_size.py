"""Which batch to train with: the measured sizes of one technique set on one kind of GPU, and the answers among them."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.record import Outcome, TrialRecord
from orchestrator import units

FILE = "batch_size.json"
"""The answers in the run folder."""
TOO_LARGE = (Outcome.OUT_OF_MEMORY, Outcome.HOST_OUT_OF_MEMORY)


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """One batch as it was measured; bytes and speed are None where the trial did not get that far."""

    micro_batch: int
    accumulation: int
    trial_id: str
    outcome: Outcome
    reason: str
    memory_bytes: int | None
    limit_bytes: float
    """What it may take: the device's memory less what was in use before and the margin; infinite without a GPU."""
    samples_per_second: float | None
    speed_error: float
    """Half the 95 % confidence interval of the speed, relative to it; infinite where it is not known."""
    warnings: tuple[str, ...]
    wall_seconds: float

    @property
    def fits(self) -> bool:
        """It ran, and within the limit."""
        return self.samples_per_second is not None and (self.memory_bytes or 0) <= self.limit_bytes

    @property
    def speed(self) -> float:
        """Samples per second; 0 where it did not run."""
        return self.samples_per_second or 0.0

    @property
    def thrashes(self) -> bool:
        """The allocator had to flush its cache, so its speed says more of the memory than of the size."""
        return any(warning.startswith("thrashing") for warning in self.warnings)


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What is known of the batch of one technique set on one kind of GPU. Every size in it is a trial's record;
    only ``next_bytes`` is inferred."""

    techniques: str
    margin_bytes: int | None
    """Memory kept free; None where there is no GPU."""
    device_bytes: int | None
    tolerance: float
    sizes: tuple[Size, ...]
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

    @property
    def largest(self) -> Size | None:
        """The largest micro-batch that was seen to fit."""
        return max(self._single(), key=lambda size: size.micro_batch, default=None)

    @property
    def fastest(self) -> Size | None:
        """The fastest micro-batch."""
        return fastest(self._single())

    @property
    def plateau(self) -> Size | None:
        """The smallest micro-batch within the tolerance of the fastest."""
        return plateau(self._single(), self.tolerance)

    @property
    def below_plateau(self) -> Size | None:
        """The largest measured micro-batch that is too small for the plateau."""
        begin = self.plateau
        below = [size for size in self._single() if begin and size.micro_batch < begin.micro_batch]
        return max(below, key=lambda size: size.micro_batch, default=None)

    @property
    def accumulated(self) -> Size | None:
        """The fastest way to the effective batch."""
        whole = [
            size
            for size in self.sizes
            if size.micro_batch * size.accumulation == self.effective_batch
        ]
        return fastest(size for size in whole if size.fits)

    @property
    def alignment(self) -> tuple[Size, Size] | None:
        """The largest and the multiple of 8 below it, where the multiple is faster by more than the tolerance."""
        odd = self.largest
        if odd is None or odd.micro_batch % 8 == 0 or odd.thrashes:
            return None
        whole = next(
            (size for size in self._single() if size.micro_batch == odd.micro_batch // 8 * 8), None
        )
        return (odd, whole) if whole and whole.speed > odd.speed * (1 + self.tolerance) else None

    @property
    def slot_seconds(self) -> float:
        """What the trials took of their GPUs."""
        return sum(size.wall_seconds for size in self.sizes)

    def _single(self) -> list[Size]:
        return [size for size in self.sizes if size.accumulation == 1 and size.fits]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; infinities as null."""
        named = {
            name: getattr(self, name) for name in ("largest", "fastest", "plateau", "accumulated")
        }
        return {
            "techniques": self.techniques,
            "device_bytes": self.device_bytes,
            "margin_bytes": self.margin_bytes,
            "tolerance": self.tolerance,
            "effective_batch": self.effective_batch,
            **{name: size and _size_json(size) for name, size in named.items()},
            "granularity": self.granularity,
            "predicted_next_bytes": self.next_bytes and round(self.next_bytes),
            "multiples_of_8_matter": self.alignment is not None,
            "sizes": [_size_json(size) for size in self.sizes],
            "slot_seconds": self.slot_seconds,
            "unfinished": self.unfinished,
        }


def _size_json(size: Size) -> dict[str, Any]:
    return {
        "micro_batch": size.micro_batch,
        "accumulation": size.accumulation,
        "trial_id": size.trial_id,
        "outcome": size.outcome.value,
        "reason": size.reason,
        "fits": size.fits,
        "memory_bytes": size.memory_bytes,
        "samples_per_second": size.samples_per_second,
        "samples_per_second_error": size.speed_error if math.isfinite(size.speed_error) else None,
        "warnings": list(size.warnings),
        "wall_seconds": size.wall_seconds,
    }


def size_of(record: TrialRecord, margin: float) -> Size:
    """A trial's batch as measured; ``margin`` is the share of the device's memory to keep free, or bytes from 1."""
    found = record.measurements
    ok = record.outcome is Outcome.OK
    memory = (found.get("device_used_bytes") or found.get("peak_allocated_bytes")) if ok else None
    device = record.environment.get("gpu_memory_bytes")
    free = (
        device - margin_bytes(device, margin) - (found.get("gpu_used_before_bytes") or 0)
        if device
        else math.inf
    )
    error = found.get("samples_per_second_error")
    return Size(
        micro_batch=record.spec.micro_batch,
        accumulation=record.spec.accumulation,
        trial_id=record.trial_id,
        outcome=record.outcome,
        reason=record.reason,
        memory_bytes=memory,
        limit_bytes=free,
        samples_per_second=found.get("samples_per_second") if ok else None,
        speed_error=error if error is not None else math.inf,
        warnings=tuple(found.get("warnings") or ()),
        wall_seconds=record.wall_seconds,
    )


def margin_bytes(device_bytes: int, margin: float) -> int:
    """The margin in bytes: a share below 1, or bytes."""
    return round(margin * device_bytes if margin < 1 else margin)


def fastest(sizes: Iterable[Size]) -> Size | None:
    """The fastest, the smaller of equals."""
    return max(sizes, key=lambda size: (size.speed, -size.micro_batch), default=None)


def plateau(sizes: Sequence[Size], tolerance: float) -> Size | None:
    """The smallest whose speed is within the tolerance of the fastest's."""
    best = fastest(sizes)
    within = [size for size in sizes if best and size.speed >= (1 - tolerance) * best.speed]
    return min(within, key=lambda size: size.micro_batch, default=None)


def describe(answer: Answer, hardware: str) -> str:
    """The answer as lines under 120 columns; what was not measured is marked as predicted."""
    notes = (
        textwrap.fill(note, 118, initial_indent="  ", subsequent_indent="    ")
        for note in _notes(answer)
    )
    return "\n".join([_heading(answer, hardware), *_table(answer), *notes])


def _heading(answer: Answer, hardware: str) -> str:
    if answer.device_bytes is None or answer.margin_bytes is None:
        return f"{answer.techniques} on {hardware} (no GPU: memory is what tensors hold, and nothing limits it)"
    kept = f"{units.memory(answer.margin_bytes) if answer.margin_bytes else 'nothing'} kept free"
    return f"{answer.techniques} on {hardware} ({units.memory(answer.device_bytes)}, {kept})"


def _table(answer: Answer) -> Iterator[str]:
    largest, fast, begin = answer.largest, answer.fastest, answer.plateau
    if largest is None or fast is None or begin is None:
        return
    rows = [("largest that fits", largest, _why_largest(answer, largest))]
    rows.append(("fastest", fast, ""))
    rows.append((f"plateau, {answer.tolerance:.0%}", begin, _why_plateau(answer, begin, fast)))
    if (whole := answer.accumulated) is not None:
        slower = 1 - whole.speed / fast.speed
        why = (
            f"{slower:.1%} slower than the fastest micro-batch" if slower > answer.tolerance else ""
        )
        rows.append((f"effective batch {answer.effective_batch}", whole, why))
    yield f"  {'':<22}{'batch':>10}{'samples/s':>20}{'memory':>12}"
    for name, size, why in rows:
        yield f"  {name:<22}{_batch(size):>10}{_speed(size):>20}{units.memory(size.memory_bytes):>12}  {why}".rstrip()


def _batch(size: Size) -> str:
    return (
        f"{size.micro_batch} × {size.accumulation}"
        if size.accumulation > 1
        else str(size.micro_batch)
    )


def _speed(size: Size) -> str:
    return f"{units.number(size.samples_per_second)} {units.error(size.speed_error)}".rstrip()


def _why_largest(answer: Answer, largest: Size) -> str:
    above = [
        size
        for size in answer.sizes
        if size.accumulation == 1 and size.micro_batch > largest.micro_batch
    ]
    if largest.micro_batch >= answer.max_micro_batch:
        return "the most that was asked for"
    within = above and above[0].micro_batch - largest.micro_batch <= answer.granularity
    if above and (within or above[0].outcome is Outcome.TIMED_OUT):
        return f"{above[0].micro_batch}: {_refusal(above[0])}"
    if answer.unfinished or answer.next_bytes is None:
        return "not known to be the largest"
    known = f", to within {answer.granularity}" if answer.granularity > 1 else ""
    return f"one more: {units.memory(answer.next_bytes)} predicted{known}"


def _refusal(size: Size) -> str:
    if size.outcome is Outcome.OK:
        return f"{units.memory(size.memory_bytes)}, inside the margin"
    return size.outcome.value.replace("_", " ")


def _why_plateau(answer: Answer, begin: Size, fast: Size) -> str:
    below = answer.below_plateau
    parts = [f"{below.micro_batch} is {1 - below.speed / fast.speed:.1%} slower"] if below else []
    if begin.memory_bytes and fast.memory_bytes and begin is not fast:
        parts.insert(0, f"{begin.memory_bytes / fast.memory_bytes:.0%} of the fastest's memory")
    return "; ".join(parts)


def _notes(answer: Answer) -> Iterator[str]:
    if answer.largest is None:
        yield (
            "no size is known to fit"
            if answer.unfinished
            else "nothing fits, not even a micro-batch of 1"
        )
    elif answer.effective_batch is not None and answer.accumulated is None:
        yield f"effective batch {answer.effective_batch}: no micro-batch that divides it was seen to fit"
    if answer.unfinished:
        yield f"unfinished: {answer.unfinished}"
    if (pair := answer.alignment) is not None:
        odd, whole = pair
        faster = whole.speed / odd.speed - 1
        yield f"multiples of 8 matter here: {whole.micro_batch} was {faster:.1%} faster than {odd.micro_batch}"
    fast = answer.fastest
    if fast is not None and answer.tolerance < fast.speed_error:
        known = (
            f"to {units.error(fast.speed_error)}"
            if math.isfinite(fast.speed_error)
            else "from one step"
        )
        yield f"speeds are known {known} only: sizes of like speed are not told apart"
    if answer.sizes:
        listed = ", ".join(f"{_batch(size)} ({_brief(size)})" for size in answer.sizes)
        yield f"{units.count(len(answer.sizes), 'trial')}, {units.duration(answer.slot_seconds)} of slot time: {listed}"


def _brief(size: Size) -> str:
    return f"{units.number(size.speed)}/s" if size.fits else _refusal(size)
