"""Which configurations a page shows where there are too many: fronts, and every n-th other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.dataset import Dataset
from orchestrator.analysis.pareto import fronts_by

MAX_CONFIGURATIONS = 20_000
"""A browser still moves as many smoothly; each takes about 200 bytes of the page."""

Shown = Mapping[str, Sequence[Configuration]]
"""Environment's id -> its configurations that a page shows."""


def shown_configurations(dataset: Dataset, limit: int = MAX_CONFIGURATIONS) -> Shown:
    """About ``limit`` configurations, and those on a front of equal recipe and batch."""
    total = sum(len(results.configurations) for results in dataset.environments)
    every = max(1, -(-total // limit))
    shown = {}
    for results in dataset.environments:
        own = results.configurations
        shown[results.environment_id] = own if every == 1 else _thinned(own, every)
    return shown


def _thinned(configurations: Sequence[Configuration], every: int) -> list[Configuration]:
    """Every n-th configuration, and those on a front of equal recipe and effective batch."""
    fronts = fronts_by(configurations, _trains_like)
    kept = {id(own) for front in fronts.values() for own in front}
    kept |= {id(own) for own in configurations[::every]}
    return [own for own in configurations if id(own) in kept]


def _trains_like(configuration: Configuration) -> object:
    return configuration.trains_like


def left_out(dataset: Dataset, shown: Shown) -> str:
    """What a page says of the configurations that it does not show; empty where it shows all."""
    total = sum(len(results.configurations) for results in dataset.environments)
    shown_count = sum(map(len, shown.values()))
    if shown_count == total:
        return ""
    return (
        f"Map and table show {shown_count:,} of {total:,} configurations: all on a Pareto front of "
        "equal recipe and effective batch, and an even choice of the others. trials.parquet holds "
        "all."
    )
