"""The cheapest of the cards on which a trial runs: per run if its time is known, else by hour."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.analysis.dataset import load_dataset
from orchestrator.storage.prices import Price
from orchestrator.units import HOUR_SECONDS


@dataclass(frozen=True, kw_only=True, slots=True)
class Cheapest:
    """A card, and what it costs in the currency of the prices."""

    card: str
    per_hour: float
    per_run: float | None
    """None if no time is known on any card on which the trial runs."""


def cheapest(trial_id: str, trains: Sequence[str], prices: Mapping[str, Price]) -> Cheapest | None:
    """The cheapest card of ``trains`` for a trial; None if none of them has a price."""
    offers = []
    for card in trains:
        if (price := prices.get(card)) is None:
            continue
        hours = price.hours
        if price.run is not None and price.samples is not None:
            speed = _speeds(price.run).get(trial_id)
            hours = None if not speed else price.samples / speed / HOUR_SECONDS
        per_run = None if hours is None else hours * price.price
        offers.append(Cheapest(card=card, per_hour=price.price, per_run=per_run))
    timed = [own for own in offers if own.per_run is not None]
    if timed:
        return min(timed, key=lambda own: own.per_run or 0.0)
    return min(offers, key=lambda own: own.per_hour, default=None)


@functools.cache
def _speeds(run: str) -> dict[str, float | None]:
    """Samples per second of each trial of a recorded run. Raises what reading a run raises."""
    return {row["trial_id"]: row["samples_per_second"] for row in load_dataset(Path(run)).rows}
