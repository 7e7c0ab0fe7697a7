"""Predicted memory against what was measured afterwards: relative errors, and false fits.

FILE is what ``python -m tests.benchmarks.predictions`` wrote. A row is compared with the trial of
the same choices in the run of the same config.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobs.record import Outcome
from jobs.techniques import AXES
from orchestrator.analysis.dataset import load_dataset
from orchestrator.labels import label
from orchestrator.prediction.prediction import CARDS
from orchestrator.storage.tables.predictions import read_predictions
from orchestrator.storage.tables.rows import Row

COLUMNS = {
    "allocated": "peak_allocated_bytes",
    "reserved": "peak_reserved_bytes",
    "device": "device_peak_bytes",
}
"""Predicted figure -> the column that measures it."""
LARGE_ERROR = 0.01


@dataclass(frozen=True, slots=True)
class Compared:
    """One prediction and the row that measured it: ok, or out of memory."""

    prediction: Row
    actual: Row

    @property
    def errors(self) -> dict[str, float]:
        """Figure -> its relative error; empty if the trial ran out of memory."""
        if self.actual["outcome"] != Outcome.OK:
            return {}
        errors = {}
        for figure, column in COLUMNS.items():
            if self.prediction[f"{figure}_bytes"]:
                errors[figure] = self.prediction[f"{figure}_bytes"] / self.actual[column] - 1
        return errors

    @property
    def allocated_error(self) -> float:
        """Absolute error of the allocated peak; 0 where it is not known."""
        return abs(self.errors.get("allocated", 0.0))

    @property
    def false_fits(self) -> list[int]:
        """Cards, in GB, that the trial fits by the prediction and not by the measurement."""
        ran_out = self.actual["outcome"] == Outcome.OUT_OF_MEMORY
        cards = [card for card in CARDS if self.prediction[f"fits_{card}_gb"] == "yes"]
        return [card for card in cards if ran_out or self.actual["device_peak_bytes"] > CARDS[card]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the subcommand takes."""
    parser.add_argument("predicted", type=Path, metavar="FILE.parquet")
    parser.add_argument("runs", type=Path, metavar="RUNS", help="a folder of run folders")


def lines(options: argparse.Namespace) -> Iterator[str]:
    """The figures of a file of predictions and a folder of runs."""
    predictions, versions = read_predictions(options.predicted)
    yield f"predicted with torch {versions['torch']}, transformers {versions['transformers']}"
    datasets = [load_dataset(run) for run in sorted(options.runs.iterdir())]
    rows = [(dataset.name, row) for dataset in datasets for row in dataset.rows]
    comparisons = list(compared(predictions, rows))
    yield from summary(comparisons)
    yield from large_errors(comparisons)


def compared(predictions: Iterable[Row], measured: Iterable[tuple[str, Row]]) -> Iterator[Compared]:
    """The predictions that were measured. ``measured`` are names of configs, with a row of each."""
    actual = {(config, _identity(row)): row for config, row in measured}
    for prediction in predictions:
        choices = json.loads(prediction["choices"])
        row = actual.get((prediction["config"], _identity(choices)))
        if row is not None and row["outcome"] in (Outcome.OK, Outcome.OUT_OF_MEMORY):
            yield Compared(prediction, row)


def _identity(choices: Row) -> tuple[str, ...]:
    return tuple(str(choices[axis]) for axis in AXES)


def summary(comparisons: Sequence[Compared]) -> Iterator[str]:
    """Markdown, per config and in all: median and largest absolute errors, false fits."""
    yield "| config | trials | unknown | allocated | reserved | device | false fits |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    by_config: dict[str, list[Compared]] = {}
    for own in comparisons:
        by_config.setdefault(own.prediction["config"], []).append(own)
    for name, group in {**by_config, "all": list(comparisons)}.items():
        unknown = sum(not own.prediction["allocated_bytes"] for own in group)
        false_fits = sum(len(own.false_fits) for own in group)
        errors = " | ".join(_median_and_largest(figure, group) for figure in COLUMNS)
        yield f"| {name} | {len(group)} | {unknown} | {errors} | {false_fits} |"


def _median_and_largest(figure: str, comparisons: Sequence[Compared]) -> str:
    errors = [abs(own.errors[figure]) for own in comparisons if figure in own.errors]
    return f"{statistics.median(errors):.3%}, {max(errors):.3%}" if errors else ""


def large_errors(comparisons: Sequence[Compared]) -> Iterator[str]:
    """Every row whose allocated peak was off by more than 1 %, the largest error first."""
    off = [own for own in comparisons if own.allocated_error > LARGE_ERROR]
    for own in sorted(off, key=lambda comparison: -comparison.allocated_error):
        words = label(json.loads(own.prediction["choices"]), list(AXES))
        yield f"  {own.errors['allocated']:+.2%}  {own.prediction['config']}  {words}"
