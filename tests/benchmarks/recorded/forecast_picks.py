"""``predict --tune`` against what recorded runs of ``tune`` found.

For each run and budget: the configuration that the forecast puts first among those that the run
could try, and the first in its order that a recorded run measured within the budget, at the nearest
micro-batch. Of techniques with equal forecasts, the fastest measured ones stand for all. The regret
is how much faster the fastest measured row within the budget is.
"""

import json
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence

from jobs.record import Outcome
from jobs.spec import TrialSpec
from jobs.techniques import AXES, BATCH_AXES
from orchestrator.analysis.dataset import Dataset
from orchestrator.labels import label
from orchestrator.planning.config import load_config
from orchestrator.planning.tune_space.space import Goal, tune_space
from orchestrator.prediction.gpus import load_gpu
from orchestrator.prediction.tune.traced_sets import TracedCandidate
from orchestrator.prediction.tune.tune_forecast import forecast_space
from orchestrator.prediction.tune.worth_tracing import forecast_key
from orchestrator.storage.tables.rows import Row
from orchestrator.units import GIB
from tests.benchmarks.recorded.configurations import measured_rows, recorded_runs
from tests.benchmarks.tables import RESULTS


def lines(options: Namespace) -> Iterator[str]:
    rows: dict[str, list[Row]] = {}
    for dataset in recorded_runs(RESULTS):
        for own in measured_rows(dataset):
            if own.row["outcome"] == Outcome.OK:
                rows.setdefault(own.group, []).append(own.row)
    yield (
        "| model | within | forecast's first | its forecast | first that was measured "
        "| its forecast | measured | fastest measured | regret |"
    )
    yield "| --- | ---: | --- | ---: | --- | ---: | ---: | ---: | ---: |"
    for folder in options.runs:
        for dataset in recorded_runs(folder):
            group = next(measured_rows(dataset)).group
            yield from _of_run(dataset, rows[group])


def _of_run(dataset: Dataset, rows: Sequence[Row]) -> Iterator[str]:
    """A line for each budget of a run of ``tune``; ``rows`` are of its model and data."""
    gpu, axes = load_gpu("h200"), dataset.run.config["axes"]
    space = tune_space(
        load_config(dataset.run.config["path"]), Goal(), has_gpu=True, is_missing=lambda _: False
    )
    trials = [spec for spec in space.plan.trials if _could_be_tried(spec, axes)]
    budgets = dataset.run.config["budgets"]
    forecast = forecast_space(trials, [(gpu, budget) for budget in budgets])
    keys = {_techniques(spec.choices): forecast_key(spec) for spec in trials}
    for asked, budget in enumerate(budgets):
        fitting = [row for row in rows if row["device_peak_bytes"] <= budget]
        within = [row for row in fitting if _techniques(row) in keys]
        best = max(row["samples_per_second"] for row in within)
        by_key: dict[str, list[Row]] = {}
        for row in within:
            by_key.setdefault(keys[_techniques(row)], []).append(row)
        ranked = forecast.ranked(asked)
        places = [forecast_key(own.spec) for own in ranked]
        place = next((place for place, key in enumerate(places) if key in by_key), None)
        if place is None:
            first = _words(ranked[0]) if ranked else "nothing fits"
            yield f"| {dataset.name} | {budget / GIB:.0f} GiB | {first} | | | | | {best:.4g} | |"
            continue
        own, row = ranked[place], _nearest(ranked[place], by_key[places[place]])
        speed = row["samples_per_second"]
        at = f"no. {place + 1} of {len(ranked)}, {_words(own)}; measured at {row['micro_batch']}"
        yield (
            f"| {dataset.name} | {budget / GIB:.0f} GiB | {_words(ranked[0])} "
            f"| {1 / ranked[0].time.likely_seconds_per_sample:.4g} | {at} "
            f"| {1 / own.time.likely_seconds_per_sample:.4g} | {speed:.4g} | {best:.4g} "
            f"| {best / speed - 1:.1%} |"
        )


def _could_be_tried(spec: TrialSpec, axes: Mapping[str, Sequence[object]]) -> bool:
    """Whether the machine of the run had what its techniques need."""
    techniques = ((name, own) for name, own in spec.choices.items() if name not in BATCH_AXES)
    return all(name not in axes or own in axes[name] for name, own in techniques)


def _nearest(candidate: TracedCandidate, rows: Sequence[Row]) -> Row:
    """The row at the nearest micro-batch, the fastest of equally near ones."""
    wanted = candidate.spec.micro_batch
    return min(rows, key=lambda row: (abs(row["micro_batch"] - wanted), -row["samples_per_second"]))


def _techniques(choices: Row) -> str:
    """Equal for the same techniques at any batch; an axis that is missing is at its default."""
    values = {}
    for name, axis in AXES.items():
        if name not in {*BATCH_AXES, "sequence_length"}:
            value = choices.get(name)
            values[name] = axis.default if value is None else value
    return json.dumps(values)


def _words(candidate: TracedCandidate) -> str:
    choices = candidate.spec.choices
    return label(choices, [name for name in choices if name not in ("accumulation",)])
