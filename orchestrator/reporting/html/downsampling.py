"""Which configurations a page shows if there are too many: fronts, and every n-th other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.dataset import Dataset
from orchestrator.analysis.pareto import fronts_by

MAX_CONFIGURATIONS = 20_000
"""A chart of this many points still zooms smoothly; each takes about 200 bytes of the page."""

Shown = Mapping[str, Sequence[Configuration]]
"""Environment's id -> its configurations that a page shows."""


def shown_configurations(dataset: Dataset, limit: int = MAX_CONFIGURATIONS) -> Shown:
    """About ``limit`` configurations, and those on a front of equal recipe and batch."""
    # Rounded up, so that the even choice alone never exceeds the limit.
    every = max(1, -(-_total(dataset) // limit))
    shown = {}
    for results in dataset.environments:
        shown[results.environment_id] = _thinned(results.configurations, every)
    return shown


def _total(dataset: Dataset) -> int:
    return sum(len(results.configurations) for results in dataset.environments)


def _thinned(configurations: Sequence[Configuration], every: int) -> Sequence[Configuration]:
    """Every n-th configuration, and those on a front of equal recipe and effective batch."""
    if every == 1:
        return configurations
    # Identity, because configurations are not hashable by value.
    kept = set(map(id, configurations[::every]))
    for front in fronts_by(configurations, _trains_like).values():
        kept.update(map(id, front))
    return [configuration for configuration in configurations if id(configuration) in kept]


def _trains_like(configuration: Configuration) -> object:
    return configuration.trains_like


def left_out(dataset: Dataset, shown: Shown) -> str:
    """A sentence about the configurations that a page does not show; empty if it shows all."""
    total = _total(dataset)
    shown_count = sum(map(len, shown.values()))
    if shown_count == total:
        return ""
    return (
        f"Map and table show {shown_count:,} of {total:,} configurations: all on a Pareto front of "
        "equal recipe and effective batch, and an even choice of the others. trials.parquet holds "
        "all."
    )
