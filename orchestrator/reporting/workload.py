"""A user's own training: the time, price and energy that it takes with a configuration."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.analysis.accumulation import Candidate
from orchestrator.analysis.objectives import OBJECTIVES
from orchestrator.units import HOUR_SECONDS

_JOULES_PER_KWH = 3_600_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """The user's own training: how much of it there is."""

    samples: int
    epochs: float = 1.0

    def seconds(self, candidate: Candidate) -> float:
        """Seconds of training steps; start-up, evaluation and saving come on top."""
        return self.samples * self.epochs / candidate.configuration.samples_per_second

    def price(self, candidate: Candidate, price_per_hour: float | None) -> float | None:
        """What those seconds cost; None without a price."""
        if price_per_hour is None:
            return None
        return self.seconds(candidate) / HOUR_SECONDS * price_per_hour

    def kilowatt_hours(self, candidate: Candidate) -> float | None:
        """The GPU's energy for them; None where it was not measured."""
        joules = OBJECTIVES["joules_per_sample"].of(candidate.configuration, None)
        return None if joules is None else joules * self.samples * self.epochs / _JOULES_PER_KWH
