"""Throughput by micro-batch: a line for each set of techniques that was measured at several."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from jobs.spec import Choice
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.dataset import Dataset, EnvironmentResults
from orchestrator.labels import label

MAX_LINES = 7
"""Number of lines for the fastest sets. With the baseline's line there are as many as colours."""
_BATCH_AXES = ("micro_batch", "accumulation", "effective_batch")


def batch_lines(
    dataset: Dataset, results: EnvironmentResults, index_of: Mapping[str, int]
) -> list[dict[str, Any]]:
    """Lines, as plain values: name, rows of the page's data by micro-batch, and which view.

    ``single`` lines differ from the baseline in one technique at most; ``best`` ones are the
    fastest sets of techniques and the baseline's. A line has at least two micro-batches.
    """
    lines = []
    for techniques, members in _sets(results, index_of).items():
        points = _by_micro_batch(members)
        # A single point makes no line.
        if len(points) > 1:
            lines.append(_line(dataset, results, dict(techniques), points, index_of))
    lines.sort(key=_speed, reverse=True)
    # The fastest sets come first. The baseline's line is added for comparison.
    for number, line in enumerate(lines):
        line["best"] = int(number < MAX_LINES or not line["moved"])
        line["single"] = int(line["moved"] <= 1)
    return [line for line in lines if line["best"] or line["single"]]


def _sets(
    results: EnvironmentResults, index_of: Container[str]
) -> dict[tuple[tuple[str, Choice], ...], list[Configuration]]:
    """The configurations that the page's data has, by their set of techniques."""
    sets: dict[tuple[tuple[str, Choice], ...], list[Configuration]] = {}
    for configuration in results.configurations:
        if configuration.trial_ids[0] in index_of:
            sets.setdefault(_techniques(configuration), []).append(configuration)
    return sets


def _techniques(configuration: Configuration) -> tuple[tuple[str, Choice], ...]:
    choices = configuration.choices.items()
    return tuple((axis, value) for axis, value in choices if axis not in _BATCH_AXES)


def _by_micro_batch(members: list[Configuration]) -> list[Configuration]:
    """The fastest configuration at each micro-batch, smallest first."""
    fastest: dict[int, Configuration] = {}
    for configuration in members:
        micro_batch = configuration.row["micro_batch"]
        best = fastest.get(micro_batch)
        if best is None or configuration.samples_per_second > best.samples_per_second:
            fastest[micro_batch] = configuration
    return [fastest[micro_batch] for micro_batch in sorted(fastest)]


def _line(
    dataset: Dataset,
    results: EnvironmentResults,
    techniques: Mapping[str, Choice],
    points: list[Configuration],
    index_of: Mapping[str, int],
) -> dict[str, Any]:
    axes = [axis for axis in dataset.varying_axes if axis not in _BATCH_AXES]
    moved = [axis for axis, value in techniques.items() if value != results.baseline[axis]]
    name = label(techniques, axes)
    if not moved:
        name = f"{name} (baseline)"
    return {
        "name": name,
        "moved": len(moved),
        "points": [index_of[own.trial_ids[0]] for own in points],
        "sizes": [own.row["micro_batch"] for own in points],
        "speed": max(own.samples_per_second for own in points),
    }


def _speed(line: Mapping[str, Any]) -> float:
    return float(line["speed"])
