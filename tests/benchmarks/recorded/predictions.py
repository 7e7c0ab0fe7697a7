"""Predicted memory against what was measured: errors, shares inside the intervals, false fits.

FILE is what ``python -m tests.benchmarks.predictions`` wrote. A prediction is compared with the
rows of its choices, in runs of the same config or of the same model and data. Rows on a GPU that
other processes used are left out.
"""

import json
import statistics
from argparse import Namespace
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from jobs.record import Outcome
from orchestrator.prediction.intervals import REGROUPED, UNTRACED
from orchestrator.prediction.prediction import CARDS
from orchestrator.storage.tables.rows import Row
from tests.benchmarks.recorded.configurations import identity, measured_rows, recorded_runs
from tests.benchmarks.recorded.runs import read_predictions
from tests.benchmarks.recorded.timed_rows import HOST_BOUND, techniques

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
        measured = self._measured()
        return {name: self._forecast(name, "bytes") / own - 1 for name, own in measured.items()}

    @property
    def inside(self) -> dict[str, bool]:
        """Figure -> whether its interval holds the measurement."""
        inside = {}
        for name, measured in self._measured().items():
            inside[name] = self._forecast(name, "low") <= measured <= self._forecast(name, "high")
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
        """How much the reserved memory differs from the replay by more than what is not traced, in
        the step's largest blocks."""
        block = self.prediction.get("largest_block_bytes")
        reserved = self._measured().get("reserved")
        if not block or reserved is None:
            return None
        likely = self.prediction["reserved_bytes"]
        return max(0.0, abs(reserved - likely) - UNTRACED * likely) / float(block)

    def holds(self, share: float) -> bool:
        """Whether the interval of reserved memory would hold it with this share of the block."""
        more = (share - REGROUPED) * self.prediction["largest_block_bytes"]
        low, high = self.prediction["reserved_low"] - more, self.prediction["reserved_high"] + more
        return bool(low <= self._measured()["reserved"] <= high)

    @property
    def width(self) -> float:
        """Of the interval of the whole GPU, as a share of its figure."""
        low, high, likely = (self._forecast("device", own) for own in ("low", "high", "bytes"))
        return (high - low) / likely

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
        if self.ran_a_part:
            measured.pop("reserved", None)
        return measured

    @property
    def ran_a_part(self) -> bool:
        """Whether the row's steps are a part of an epoch of rows of unequal length. What the
        allocator caches in them is not what it caches over the epoch, and has a forecast of its
        own."""
        ran = (self.actual.get(name) or 0 for name in ("steps_counted", "warmup_steps"))
        predicted = self.prediction
        return bool(predicted.get("trial_device_bytes")) and sum(ran) < predicted["epoch_steps"]

    def _forecast(self, figure: str, end: str) -> float:
        """An end of the figure's interval, or its ``bytes``: of a trial where the row is one."""
        is_of_trial = figure == "device" and self.ran_a_part
        return float(self.prediction[f"{'trial_' * is_of_trial}{figure}_{end}"])


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
    """Markdown, per config, per technique and in all: median and largest absolute errors, the
    share of the peaks of the whole GPU inside their intervals, their median width, false fits."""
    columns = ["rows", "unknown", *COLUMNS, "inside", "width", "false fits"]
    yield f"| config or technique | {' | '.join(columns)} |"
    yield f"| --- |{' ---: |' * len(columns)}"
    groups: dict[str, list[Compared]] = {}
    for comparison in comparisons:
        groups.setdefault(comparison.prediction["config"], []).append(comparison)
    for comparison in comparisons:
        for name in techniques(json.loads(comparison.prediction["choices"])):
            groups.setdefault(name, []).append(comparison)
    for name, group in {**groups, "all": list(comparisons)}.items():
        unknown = sum(not comparison.prediction["allocated_bytes"] for comparison in group)
        false_fits = sum(len(comparison.false_fits) for comparison in group)
        errors = " | ".join(_median_and_largest(figure, group) for figure in COLUMNS)
        known = [own for own in group if "device" in own.errors]
        holds = f"{statistics.mean(own.inside['device'] for own in known):.1%}" if known else ""
        width = f"{statistics.median(own.width for own in known):.1%}" if known else ""
        yield (
            f"| {name} | {len(group)} | {unknown} | {errors} | {holds} | {width} | {false_fits} |"
        )


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
    """How far forecast seconds are from those of rows that do not wait for the host, and how many
    of all rows their intervals hold."""
    errors, are_inside = [], []
    for own in comparisons:
        forecast, row = own.prediction.get("step_seconds"), own.actual
        if not forecast or row["outcome"] != Outcome.OK:
            continue
        seconds = row["step_seconds_median"]
        low, high = own.prediction["step_seconds_low"], own.prediction["step_seconds_high"]
        are_inside.append(low <= seconds <= high)
        if row["host_bound_share"] <= HOST_BOUND:
            errors.append(abs(forecast / seconds - 1))
    if are_inside:
        inside = sum(are_inside)
        yield f"step time of all rows with a forecast: {inside} of {len(are_inside)} inside"
    if errors:
        yield (
            f"step time of {len(errors)} rows that do not wait for the host: median error "
            f"{statistics.median(errors):.1%}, nine of ten within {np.quantile(errors, 0.9):.1%}, "
            f"all within {max(errors):.1%}"
        )


def _residuals(comparisons: Sequence[Compared]) -> Iterator[str]:
    """How wide the intervals are, and the share of a step's largest block that widens them.

    The share holds 95 % of the distinct configurations without DeepSpeed whose rows are equally
    long and whose tensors are as traced, each model with equal weight. Then each model is judged by
    the share of the others, which takes a table of today's intervals.
    """
    by_model: dict[str, dict[str, Compared]] = {}
    widths: dict[tuple[str, str], float] = {}
    for own in comparisons:
        config, choices = own.prediction["config"], own.prediction["choices"]
        if "device" in own.errors:
            widths[config, choices] = own.width
        has_engine = json.loads(choices)["offload"] != "none"
        # Orders of rows of unequal length are replayed, so the share is not theirs.
        is_unequal = bool(own.prediction.get("trial_device_bytes"))
        if own.blocks_apart is None or has_engine or is_unequal or not own.inside["allocated"]:
            continue
        its = by_model.setdefault(config, {})
        its[choices] = max(its.get(choices, own), own, key=lambda one: one.blocks_apart or 0.0)
    if widths:
        middle = statistics.median(widths.values())
        yield f"interval of the whole GPU: {middle:.1%} wide in the median of {len(widths)}"
    if len(by_model) > 1:
        every = {name: list(its.values()) for name, its in by_model.items()}
        without = {
            name: _share([its for own, its in every.items() if own != name]) for name in every
        }
        held = [own.holds(without[name]) for name, its in every.items() for own in its]
        least, most = min(without.values()), max(without.values())
        yield (
            f"reserved memory beyond its replay: {_share(every.values()):.2f} of a step's largest "
            f"block, {least:.2f} to {most:.2f} without one model, of whose configurations it then "
            f"holds {sum(held)} of {len(held)} ({sum(held) / len(held):.1%})"
        )


def _share(models: Collection[Sequence[Compared]]) -> float:
    weights = [1 / len(its) for its in models for _ in its]
    values = [own.blocks_apart or 0.0 for its in models for own in its]
    return float(np.quantile(values, WANTED_INSIDE, weights=weights, method="inverted_cdf"))
