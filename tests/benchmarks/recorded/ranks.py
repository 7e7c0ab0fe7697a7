"""Forecast step times of several GPUs against measured ones, by model.

FILE is what ``python -m tests.benchmarks.predictions`` wrote. Where a run has the model on one GPU,
its forecasts are also judged after that row has corrected them: the seconds of each are multiplied
by measured / forecast seconds of the row on one GPU. A step that is named host-bound has a lower
bound alone.
"""

import statistics
from argparse import Namespace
from collections.abc import Iterator, Sequence

from jobs.record import Outcome
from orchestrator.storage.tables.rows import Row
from tests.benchmarks.recorded.configurations import measured_rows, recorded_runs
from tests.benchmarks.recorded.predictions import compared
from tests.benchmarks.recorded.runs import read_predictions


def lines(options: Namespace) -> Iterator[str]:
    yield "| model, trial | measured | forecast | interval | error | corrected |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    predicted, _ = read_predictions(options.predicted)
    every: list[float] = []
    for config in dict.fromkeys(own["config"] for own in predicted):
        pairs = list(_pairs([own for own in predicted if own["config"] == config], options))
        yield from _judged(config, pairs, every)
    worst = max(map(abs, every))
    yield f"all {len(every)}: median error {_median(every):.1%}, worst {worst:.1%}"


def _judged(config: str, pairs: Sequence[tuple[Row, Row]], every: list[float]) -> Iterator[str]:
    """``every``: gets the errors."""
    bounds = [
        own["step_seconds_median"] >= its["step_seconds_low"]
        for its, own in pairs
        if not its["step_seconds"]
    ]
    pairs = [pair for pair in pairs if pair[0]["step_seconds"]]
    alone = [own["step_seconds_median"] / its["step_seconds"] for its, own in pairs if _is_one(own)]
    factor = alone[0] if alone else None
    errors, corrected, inside = [], [], 0
    for its, own in pairs:
        if _is_one(own):
            continue
        measured, forecast = own["step_seconds_median"], its["step_seconds"]
        low, high = its["step_seconds_low"], its["step_seconds_high"]
        errors.append(forecast / measured - 1)
        inside += low <= measured <= high
        words = ""
        if factor:
            corrected.append(factor * forecast / measured - 1)
            words = f"{corrected[-1]:+.1%}"
        name = " · ".join(str(own[axis]) for axis in ("sharding", "micro_batch", "activations"))
        seconds = f"{measured:.3f} | {forecast:.3f} | {low:.3f} to {high:.3f}"
        yield f"| {config}, {name} | {seconds} | {errors[-1]:+.1%} | {words} |"
    for title, found in (("as forecast", errors), ("corrected by one GPU", corrected)):
        if found:
            worst = max(map(abs, found))
            yield f"{config}, {title}: median error {_median(found):.1%}, worst {worst:.1%}"
    yield f"{config}, inside their interval: {inside} of {len(errors)}"
    yield f"{config}, named host-bound: {len(bounds)}, of which {sum(bounds)} are within bounds"
    every += errors


def _median(errors: Sequence[float]) -> float:
    return statistics.median(map(abs, errors))


def _is_one(row: Row) -> bool:
    return bool(row["sharding"] == "none")


def _pairs(predicted: Sequence[Row], options: Namespace) -> Iterator[tuple[Row, Row]]:
    """Each forecast with the row that measured it."""
    rows = [
        (dataset.name, own.row)
        for dataset in recorded_runs(options.runs)
        for own in measured_rows(dataset)
    ]
    for own in compared(predicted, rows):
        if own.prediction.get("step_bound") and own.actual["outcome"] == Outcome.OK:
            yield own.prediction, own.actual
