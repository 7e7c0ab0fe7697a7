"""Predicted memory against what was measured: errors, shares inside the intervals, false fits.

FILE is what ``python -m tests.benchmarks.predictions`` wrote. A prediction is compared with the
rows of its choices, in runs of the same config or of the same model and data. Rows on a GPU that
other processes used are left out.
"""

import json
import statistics
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from jobs.record import Outcome
from orchestrator.prediction.prediction import CARDS
from orchestrator.storage.tables.predictions import read_predictions
from orchestrator.storage.tables.rows import Row
from tests.benchmarks.recorded.configurations import identity, measured_rows, recorded_runs
from tests.benchmarks.recorded.timed_rows import HOST_BOUND

COLUMNS = {
    "allocated": "peak_allocated_bytes",
    "reserved": "peak_reserved_bytes",
    "device": "device_peak_bytes",
}
"""Predicted figure -> the column that measures it."""
WANTED_INSIDE = 0.95
"""Share of the measurements that an interval should hold."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One prediction and a row that measured it: ok, or out of memory."""

    prediction: Row
    actual: Row

    @property
    def errors(self) -> dict[str, float]:
        """Figure -> its relative error; empty if the trial ran out of memory."""
        predicted = self.prediction
        return {
            name: predicted[f"{name}_bytes"] / own - 1 for name, own in self._measured().items()
        }

    @property
    def inside(self) -> dict[str, bool]:
        """Figure -> whether its interval holds the measurement."""
        inside = {}
        for name, measured in self._measured().items():
            low, high = self.prediction[f"{name}_low"], self.prediction[f"{name}_high"]
            inside[name] = low <= measured <= high
        return inside

    @property
    def within_bounds(self) -> bool | None:
        """Whether the bounds of an unknown trial hold the measurement; None if it has no bounds, or
        ran out of memory."""
        predicted, measured = self.prediction, self.actual.get("device_peak_bytes")
        least, most = predicted["device_low"], predicted["device_high"]
        is_known = bool(predicted["device_bytes"]) or least is None
        if is_known or self.actual["outcome"] != Outcome.OK or not measured:
            return None
        return bool(least <= measured and (most is None or measured <= most))

    @property
    def blocks_apart(self) -> float | None:
        """Measured less predicted reserved memory, in the step's largest blocks."""
        block = self.prediction.get("largest_block_bytes")
        reserved = self._measured().get("reserved")
        if not block or reserved is None:
            return None
        return float((reserved - self.prediction["reserved_bytes"]) / block)

    @property
    def false_fits(self) -> list[int]:
        """Cards, in GB, that the trial fits by the prediction and not by the measurement."""
        ran_out = self.actual["outcome"] == Outcome.OUT_OF_MEMORY
        cards = [card for card in CARDS if self.prediction[f"fits_{card}_gb"] == "yes"]
        if ran_out:
            # The GPU that it ran out on is the largest of them.
            return [card for card in cards if card == max(CARDS)]
        return [card for card in cards if self.actual["device_peak_bytes"] > CARDS[card]]

    def _measured(self) -> dict[str, int]:
        """Figure -> its measurement, where both are known; none if the trial ran out of memory."""
        if self.actual["outcome"] != Outcome.OK:
            return {}
        measured = {}
        for figure, column in COLUMNS.items():
            if self.prediction[f"{figure}_bytes"] and self.actual.get(column):
                measured[figure] = self.actual[column]
        return measured


def lines(options: Namespace) -> Iterator[str]:
    predictions, versions = read_predictions(options.predicted)
    for prediction in predictions:
        # What `orchestrator.predict` wrote is of one config, and lies in the folder of its run.
        prediction.setdefault("config", options.predicted.parent.name)
    yield f"predicted with torch {versions['torch']}, transformers {versions['transformers']}"
    rows: list[tuple[str, Row]] = []
    measured_versions: set[tuple[str, str]] = set()
    for dataset in recorded_runs(options.runs):
        for measured in measured_rows(dataset):
            # A round's configs have the names of their runs.
            rows += [(dataset.name, measured.row), (measured.group, measured.row)]
            measured_versions.add(measured.versions)
    yield from version_warnings(versions, measured_versions)
    comparisons = list(compared(predictions, rows))
    yield from summary(comparisons)
    yield from coverage(comparisons)
    yield from step_times(comparisons)


def version_warnings(predicted: Row, measured_versions: Iterable[tuple[str, str]]) -> Iterator[str]:
    """A line for each transformers that runs had and the predictions did not."""
    for _, transformers in sorted(measured_versions):
        if transformers and transformers != predicted["transformers"]:
            yield (
                f"warning: some rows were measured with transformers {transformers}, and "
                f"predicted with {predicted['transformers']}; encoder-decoders differ by up to 28 %"
            )


def compared(predictions: Iterable[Row], measured: Iterable[tuple[str, Row]]) -> Iterator[Compared]:
    """The predictions that were measured, each with every such row.

    ``measured`` are names of configs or groups, with a row of each.
    """
    actual: dict[tuple[str, tuple[str, ...]], list[Row]] = {}
    for name, row in measured:
        if row["outcome"] in (Outcome.OK, Outcome.OUT_OF_MEMORY):
            actual.setdefault((name, identity(row)), []).append(row)
    for prediction in predictions:
        choices = json.loads(prediction["choices"])
        # Plans name the length of the section data; rows of runs without this axis do not.
        for own in (choices, {**choices, "sequence_length": "data"}):
            if rows := actual.get((prediction["config"], identity(own))):
                yield from (Compared(prediction, row) for row in rows)
                break


def summary(comparisons: Sequence[Compared]) -> Iterator[str]:
    """Markdown, per config and in all: median and largest absolute errors, false fits."""
    yield "| config | rows | unknown | allocated | reserved | device | false fits |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    by_config: dict[str, list[Compared]] = {}
    for comparison in comparisons:
        by_config.setdefault(comparison.prediction["config"], []).append(comparison)
    for name, group in {**by_config, "all": list(comparisons)}.items():
        unknown = sum(not comparison.prediction["allocated_bytes"] for comparison in group)
        false_fits = sum(len(comparison.false_fits) for comparison in group)
        errors = " | ".join(_median_and_largest(figure, group) for figure in COLUMNS)
        yield f"| {name} | {len(group)} | {unknown} | {errors} | {false_fits} |"


def _median_and_largest(figure: str, comparisons: Sequence[Compared]) -> str:
    errors = [abs(own.errors[figure]) for own in comparisons if figure in own.errors]
    return f"{statistics.median(errors):.3%}, {max(errors):.3%}" if errors else ""


def coverage(comparisons: Sequence[Compared]) -> Iterator[str]:
    """How many measurements the intervals hold, and the residuals that they are fitted to."""
    for figure in COLUMNS:
        answers = [own.inside[figure] for own in comparisons if figure in own.inside]
        if answers:
            share = sum(answers) / len(answers)
            yield f"{figure}: {sum(answers)} of {len(answers)} measurements inside ({share:.2%})"
    bounded = [own.within_bounds for own in comparisons if own.within_bounds is not None]
    if bounded:
        yield f"bounds of unknown trials: {sum(bounded)} of {len(bounded)} measurements inside"
    false_fits = sum(len(comparison.false_fits) for comparison in comparisons)
    yield f"false fits: {false_fits}"
    yield from _residuals(comparisons)


def step_times(comparisons: Iterable[Compared]) -> Iterator[str]:
    """How far forecast seconds are from those of rows that do not wait for the host."""
    errors = []
    for own in comparisons:
        forecast, row = own.prediction.get("step_seconds"), own.actual
        if forecast and row["outcome"] == Outcome.OK and row["host_bound_share"] <= HOST_BOUND:
            errors.append(abs(forecast / row["step_seconds_median"] - 1))
    if errors:
        yield (
            f"step time of {len(errors)} rows that do not wait for the host: median error "
            f"{statistics.median(errors):.1%}, nine of ten within {np.quantile(errors, 0.9):.1%}, "
            f"all within {max(errors):.1%}"
        )


def _residuals(comparisons: Sequence[Compared]) -> Iterator[str]:
    """Of distinct configurations without DeepSpeed, in the step's largest blocks."""
    distances: dict[tuple[str, str], float] = {}
    for comparison in comparisons:
        apart = comparison.blocks_apart
        choices = comparison.prediction["choices"]
        if apart is None or json.loads(choices)["offload"] != "none":
            continue
        key = (comparison.prediction["config"], choices)
        distances[key] = max(distances.get(key, 0.0), abs(apart))
    if not distances:
        return
    ordered = sorted(distances.values())
    last = len(ordered) - 1
    quantiles = [f"{q:.0%} within {ordered[int(q * last)]:.2f}" for q in (0.5, 0.95, 0.99)]
    yield (
        f"reserved memory beyond its replay, in the step's largest blocks, {len(ordered)} "
        f"configurations: {', '.join(quantiles)}, all within {ordered[-1]:.2f}"
    )
