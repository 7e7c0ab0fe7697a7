"""The time, price and energy that a user's own training takes with a configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from orchestrator.analysis.objectives import OBJECTIVES
from orchestrator.analysis.recommendation.offers import Offer
from orchestrator.units import HOUR_SECONDS, duration, number

_JOULES_PER_KWH = 3_600_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """The size of the user's own training."""

    samples: int
    epochs: float = 1.0

    def seconds(self, candidate: Offer) -> float:
        """Seconds of training steps; start-up, evaluation and saving come on top."""
        return self.samples * self.epochs / candidate.configuration.samples_per_second

    def price(self, candidate: Offer, price_per_hour: float | None) -> float | None:
        """What these GPU hours cost; None without a price."""
        if price_per_hour is None:
            return None
        return self.seconds(candidate) / HOUR_SECONDS * price_per_hour

    def kilowatt_hours(self, candidate: Offer) -> float | None:
        """The GPU's energy for the training; None if energy was not measured."""
        joules = OBJECTIVES["joules_per_sample"].of(candidate.configuration, None)
        if joules is None:
            return None
        # Joules per sample times samples, in kWh of 3.6 million joules.
        return joules * self.samples * self.epochs / _JOULES_PER_KWH

    def describe(self, candidate: Offer, price_per_hour: float | None) -> str:
        """``1,000,000 samples × 3 epochs: 3 h 14 min, price 14.6, 1.86 kWh of GPU energy``."""
        work = f"{self.samples:,} samples"
        if self.epochs != 1:
            work = f"{work} × {self.epochs:g} epochs"
        # Time is always known; price and energy only if they were given or measured.
        parts = [duration(self.seconds(candidate))]
        price = self.price(candidate, price_per_hour)
        if price is not None:
            parts.append(f"price {number(price)}")
        energy = self.kilowatt_hours(candidate)
        if energy is not None:
            parts.append(f"{number(energy)} kWh of GPU energy")
        return f"{work}: {', '.join(parts)}; start-up, evaluation and saving not counted"

    def to_json(self, candidate: Offer, price_per_hour: float | None) -> dict[str, Any]:
        """Time, price and energy as plain values; None if not known."""
        return {
            "seconds": self.seconds(candidate),
            "price": self.price(candidate, price_per_hour),
            "kilowatt_hours": self.kilowatt_hours(candidate),
        }
