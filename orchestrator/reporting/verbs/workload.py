"""The time, price and energy that a user's own training takes with a configuration."""

from dataclasses import dataclass
from typing import Any

from orchestrator.analysis.objectives import OBJECTIVES
from orchestrator.analysis.recommendation.offers import Offer
from orchestrator.units import HOUR_SECONDS, duration, number


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """The size of the user's own training."""

    samples: int
    epochs: float = 1.0

    def to_json(self, candidate: Offer, price_per_hour: float | None) -> dict[str, Any]:
        """Seconds of training steps, the price of all GPUs, and their energy; None if not known."""
        samples = self.samples * self.epochs
        seconds = samples / candidate.configuration.samples_per_second
        joules = OBJECTIVES["joules_per_sample"].of(candidate.configuration, None)
        kilowatt_hours = None if joules is None else joules * samples / (1000 * HOUR_SECONDS)
        hours = candidate.configuration.gpus * seconds / HOUR_SECONDS
        return {
            "seconds": seconds,
            "price": None if price_per_hour is None else hours * price_per_hour,
            "kilowatt_hours": kilowatt_hours,
        }

    def describe(self, candidate: Offer, price_per_hour: float | None) -> str:
        """``1,000,000 samples × 3 epochs: 3 h 14 min, price 14.6, 1.86 kWh of GPU energy``."""
        epochs = f" × {self.epochs:g} epochs" if self.epochs != 1 else ""
        figures = self.to_json(candidate, price_per_hour)
        price, energy = figures["price"], figures["kilowatt_hours"]
        parts = [
            duration(figures["seconds"]),
            "" if price is None else f"price {number(price)}",
            "" if energy is None else f"{number(energy)} kWh of GPU energy",
        ]
        what = f"{self.samples:,} samples{epochs}: {', '.join(filter(None, parts))}"
        return f"{what}; start-up, evaluation and saving not counted"
