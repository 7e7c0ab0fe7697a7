"""The file of ``predict --prices``: what an hour of each card costs, and how long a run takes.

A card has a price per hour, or a mapping: ``{price: 2.5, hours: 4}`` with the hours of a run, or
``{price: 2.5, run: FOLDER, samples: 100000}`` with the run whose recorded speed gives them.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml


@dataclass(frozen=True, kw_only=True, slots=True)
class Price:
    """Of one card. Without ``hours`` or ``run`` no time is known."""

    price: float
    """Of an hour, in the user's currency."""
    hours: float | None = None
    run: str | None = None
    samples: int | None = None


def read_prices(path: Path, cards: list[str]) -> dict[str, Price]:
    """Card -> its price. Raises ValueError with the reason, and OSError."""
    content: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise ValueError(f"{path}: a mapping of cards to prices is needed")
    if unknown := sorted(map(str, content.keys() - set(cards))):
        raise ValueError(f"{path}: unknown cards {unknown}; valid choices: {', '.join(cards)}")
    prices = {}
    for card, given in content.items():
        try:
            prices[card] = Price(**given) if isinstance(given, dict) else Price(price=float(given))
        except (TypeError, ValueError):
            example = "{price: 2.5, hours: 4} or {price: 2.5, run: FOLDER, samples: 1000}"
            raise ValueError(f"{path}: {card} needs a price per hour, {example}") from None
        if (prices[card].run is None) != (prices[card].samples is None):
            raise ValueError(f"{path}: {card} needs both run and samples")
    return prices
