"""SIMULATED devices for searches of a batch size, by laws that a test states."""

import bisect
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from jobs.record import Outcome, Provenance, TrialRecord
from jobs.spec import MeasureSpec, TrialSpec
from orchestrator.search.base import Search
from orchestrator.units import MIB
from tests.benchmarks.grids import make_spec, recorded
from tests.support.records import GPU_BOUND


def make_trial(micro_batch: int, accumulation: int) -> TrialSpec:
    spec = make_spec({"micro_batch": micro_batch, "accumulation": accumulation})
    return replace(spec, measure=MeasureSpec(warmup_steps=1, steps=5))


@dataclass(kw_only=True)
class Device:
    """Memory is affine above the optimizer's floor, and seconds are affine above the host's.

    The defaults are like an H200 with BERT-large in bf16 and 512 tokens: bytes and rates are
    measured, the law between them is not. ``overhead_seconds`` is what a trial costs beyond its
    steps.
    """

    device_mib: float = 143_771
    context_mib: float = 1_900
    floor_mib: float = 5_184
    base_mib: float = 4_484
    sample_mib: float = 516.4
    gradients_mib: float = 1_276
    host_seconds: float = 0.050
    step_seconds: float = 0.009
    samples_per_second: float = 350.0
    overhead_seconds: float = 2.7
    rounding_mib: float = 0.0
    """The allocator takes up to so much more, differently at every size."""
    noise: float = 0.0
    """Relative standard deviation of the speed, which no row reports."""
    slowdown: Callable[[int], float] = lambda micro_batch: 1.0
    extra_mib: Callable[[int], float] = lambda micro_batch: 0.0
    capped_mib: float = 0.0
    """What a trial takes more under a cap than without: its uncapped peak promised too much."""
    seed: int = 0
    ran: list[TrialRecord] = field(default_factory=list)

    def needs_mib(self, micro_batch: int, accumulation: int = 1) -> float:
        """Memory of the device that a trial takes."""
        tensors = max(self.floor_mib, self.base_mib + self.sample_mib * micro_batch)
        rounding = random.Random(f"{self.seed} {micro_batch}").uniform(0, self.rounding_mib)
        accumulated = self.gradients_mib if accumulation > 1 else 0.0
        return tensors + accumulated + self.context_mib + rounding + self.extra_mib(micro_batch)

    def speed(self, micro_batch: int, accumulation: int = 1) -> float:
        draw = random.Random(f"{self.seed} {micro_batch} {accumulation}")
        factor = max(0.2, draw.gauss(1.0, self.noise))
        return micro_batch * accumulation / self._seconds(micro_batch, accumulation) * factor

    def run(self, spec: TrialSpec) -> TrialRecord:
        size = spec.micro_batch
        accumulation = spec.accumulation
        needs = self.needs_mib(size, accumulation)
        cap = spec.measure.memory_cap
        limit_mib, extra_mib = self.device_mib, 0.0
        if cap is not None:
            limit_mib, extra_mib = cap.device_bytes / MIB, self.capped_mib
        fits = needs + extra_mib <= limit_mib
        figures = {
            "device_peak_bytes": round(needs * MIB),
            "peak_reserved_bytes": round((needs - self.context_mib) * MIB),
            "samples_per_second": self.speed(size, accumulation),
            **GPU_BOUND,
            "samples_per_second_ci95": 0.003,
        }
        steps = spec.measure.warmup_steps + (spec.measure.steps or 0)
        seconds = self.overhead_seconds + steps * self._seconds(size, accumulation) * fits
        record = TrialRecord(
            spec=spec,
            outcome=Outcome.OK if fits else Outcome.OUT_OF_MEMORY,
            reason="" if fits else "CUDA out of memory",
            measurements=figures if fits else {},
            environment=self.environment(),
            provenance=Provenance(slot_seconds=seconds),
        )
        self.ran.append(record)
        return record

    def environment(self) -> dict[str, object]:
        return {"gpu_model": "SIMULATED", "gpu_memory_bytes": round(self.device_mib * MIB)}

    def _seconds(self, micro_batch: int, accumulation: int) -> float:
        pass_seconds = micro_batch / self.samples_per_second * self.slowdown(micro_batch)
        device_seconds = pass_seconds * accumulation + self.step_seconds
        return max(self.host_seconds * accumulation, device_seconds)


@dataclass(kw_only=True)
class Cpu(Device):
    """A machine without a GPU: its memory is not known, and no trial runs out of it."""

    device_mib: float = float("inf")

    def environment(self) -> dict[str, object]:
        return {"gpu_model": "", "cpu_model": "SIMULATED"}


class Table(Device):
    """The H200 of the recorded table with one set of techniques.

    Sizes that were measured have their measured figures, others are interpolated.
    """

    def __init__(self, techniques: tuple[str, ...]) -> None:
        super().__init__(overhead_seconds=3.0)
        axes = ("precision", "activations", "optimizer")
        rows = [
            row
            for row in recorded().values()
            if tuple(row.spec.choices[axis] for axis in axes) == techniques
        ]
        ok = {row.spec.micro_batch: row.measurements for row in rows if row.outcome is Outcome.OK}
        self.speeds = {size: row["samples_per_second"] for size, row in ok.items()}
        self._memory = {size: row["device_peak_bytes"] / MIB for size, row in ok.items()}
        self.device_mib = rows[0].environment["gpu_memory_bytes"] / MIB
        self.largest_measured = max(self._memory)

    def needs_mib(self, micro_batch: int, accumulation: int = 1) -> float:
        return between(self._memory, micro_batch)

    def _seconds(self, micro_batch: int, accumulation: int) -> float:
        return accumulation * between(
            {size: size / speed for size, speed in self.speeds.items()}, micro_batch
        )


def between(curve: Mapping[int, float], size: int) -> float:
    """Linear between the nearest two sizes; beyond the last two, on the line through them."""
    sizes = sorted(curve)
    index = min(max(bisect.bisect_left(sizes, size), 1), len(sizes) - 1)
    below = sizes[index - 1]
    above = sizes[index]
    rise = curve[above] - curve[below]
    return curve[below] + rise * (size - below) / (above - below)


def asked_by(search: Search, run: Callable[[TrialSpec], TrialRecord]) -> list[TrialSpec]:
    """Ask and tell until the search has no trial left; those asked for, in order."""
    asked: list[TrialSpec] = []
    while (trial := search.ask()) is not None:
        asked.append(trial)
        search.tell(run(trial))
    return asked


def run_to_the_end(search: Search, device: Device, *, at_most: int = 100) -> list[tuple[int, int]]:
    """Ask and tell until the search is exhausted; returns the batches asked for, in order."""
    asked: list[tuple[int, int]] = []
    while (spec := search.ask()) is not None:
        asked.append((spec.micro_batch, spec.accumulation))
        assert len(asked) <= at_most, asked
        search.tell(device.run(spec))
    assert search.exhausted
    return asked
