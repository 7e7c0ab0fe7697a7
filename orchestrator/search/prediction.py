"""Memory and speed of what was not measured, learned from what was, with bounds that own up when they break."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

from orchestrator.search.configurations import Configuration, Key, Measured
from orchestrator.search.surface import Doubt, Interval, Seen, interval

MEMORY_DOUBT = 0.002
"""An allocator's rounding: what its blocks leave unused differs from size to size."""
SPEED_DOUBT = 0.01
ELSEWHERE_DOUBT, HERE_DOUBT = 0.2, 0.02
"""Share of an optimizer's cost that may not carry over: from other micro-batches, or from this one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """Of a configuration: at least so much memory and at most such a speed, and what is likely."""

    memory_low: float
    memory: float
    speed_high: float
    speed: float


class Surface:
    """One cost over all configurations: a curve along the micro-batch for each set of techniques.

    A curve with few points of its own borrows the curve of the plan's first optimizer, moved by what the optimizers
    were seen to differ by.
    """

    def __init__(self, *, relative_doubt: float, per_step: bool) -> None:
        self.doubt = Doubt(relative=relative_doubt)
        self._per_step = per_step
        self._curves: dict[Key, dict[int, float]] = {}
        self._errors: dict[tuple[Key, int], float] = {}
        self._families: dict[Key, dict[Configuration, None]] = {}

    def put(self, configuration: Configuration, cost: float, error: float = 0.0) -> bool:
        """A measured cost with its own relative error, in place of an earlier one; whether it broke its lower bound.

        A bound far from what it rests on has the doubt about that many times over; the break is divided by as much.
        """
        predicted = self.predict(configuration)
        broken = predicted is not None and cost < predicted.low
        if predicted is not None and broken:
            bar = max(1.0, (predicted.likely - predicted.low) / self.doubt.of(predicted.likely))
            self.doubt.learn(cost, (predicted.low - cost) / bar)
        self._curves.setdefault(configuration.curve, {})[configuration.micro_batch] = cost
        self._errors[configuration.curve, configuration.micro_batch] = error
        self._families.setdefault(configuration.family, {})[configuration] = None
        return broken

    def predict(self, configuration: Configuration) -> Interval | None:
        """None where nothing is known."""
        own = self._along(configuration.curve, configuration.micro_batch)
        borrowed = self._borrowed(configuration)
        if own is None or borrowed is None:
            return own or borrowed
        few = len(self._curves[configuration.curve]) < 2
        low = max(own.low, borrowed.low)
        return Interval(low=low, likely=max(low, borrowed.likely if few else own.likely))

    def _along(self, curve: Key, micro_batch: int) -> Interval | None:
        seen = sorted(self._curves.get(curve, {}).items())
        points = [
            Seen(micro_batch=size, cost=cost, doubt=max(self.doubt.of(cost), cost * self._errors[curve, size]))
            for size, cost in seen
        ]
        return interval(points, micro_batch)

    def _borrowed(self, configuration: Configuration) -> Interval | None:
        if configuration.donor == configuration.curve:
            return None
        base = self._along(configuration.donor, configuration.micro_batch)
        here, elsewhere = self._differences(configuration)
        differences = here or elsewhere
        if base is None or not differences:
            return None
        share = 1 / configuration.accumulation if self._per_step else 1.0
        doubt = (HERE_DOUBT if here else ELSEWHERE_DOUBT) * max(abs(difference) for difference in differences)
        low = base.low + share * (min(differences) - doubt)
        likely = base.likely + share * statistics.median(differences)
        return Interval(low=max(0.0, low), likely=max(0.0, low, likely))

    def _differences(self, configuration: Configuration) -> tuple[list[float], list[float]]:
        """What its optimizer was seen to cost more than the first one, a step: at its micro-batch, and at others."""
        here: list[float] = []
        elsewhere: list[float] = []
        for other in self._families.get(configuration.family, ()):
            base = self._curves.get(other.donor, {}).get(other.micro_batch)
            if base is not None:
                own = self._curves[other.curve][other.micro_batch]
                found = here if other.micro_batch == configuration.micro_batch else elsewhere
                found.append((own - base) * (other.accumulation if self._per_step else 1))
        return here, elsewhere


class Surfaces:
    """Memory, and the seconds that a micro-batch takes."""

    def __init__(self) -> None:
        self._memory = Surface(relative_doubt=MEMORY_DOUBT, per_step=False)
        self._seconds = Surface(relative_doubt=SPEED_DOUBT, per_step=True)

    def put(self, configuration: Configuration, found: Measured) -> bool:
        """A measured configuration; whether it broke a bound, so that what followed from bounds must be doubted."""
        broken = self._memory.put(configuration, found.memory_bytes)
        seconds = configuration.micro_batch / found.samples_per_second
        return self._seconds.put(configuration, seconds, found.speed_error) or broken

    def predict(self, configuration: Configuration) -> Prediction | None:
        """None where nothing is known."""
        memory, seconds = self._memory.predict(configuration), self._seconds.predict(configuration)
        if memory is None or seconds is None:
            return None
        size = configuration.micro_batch
        return Prediction(
            memory_low=memory.low,
            memory=memory.likely,
            speed_high=size / seconds.low if seconds.low else math.inf,
            speed=size / seconds.likely if seconds.likely else math.inf,
        )
