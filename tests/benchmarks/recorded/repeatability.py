"""How far a second trial of a configuration is from the first, by what sets the pace of its steps.

Every pair of runs is compared configuration by configuration. Rows whose pace is not known are left
out. All rows of two runs share their median difference. How far a row is from it is taken as
Student's t with a scale of three parts: the trials' own intervals, a share of the step, and a time
that does not grow with the step. The likeliest share, time and degrees of freedom are printed, and
how far the rows of two runs, and then those of one technique in them, are apart together.

The same is fitted to the energy per sample. ``orchestrator.analysis.repeatability`` has the printed
figures.
"""

import itertools
import math
from argparse import Namespace
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import optimize, stats

from jobs.flags import SHARED, flags_of, has_any
from orchestrator.analysis.dataset import Dataset
from orchestrator.analysis.objectives import row_joules_per_sample
from orchestrator.analysis.repeatability import Pace, Variation, pace_of
from orchestrator.storage.tables.rows import Row
from tests.benchmarks.recorded.runs import dataset_of, folders_below, full_label, ok_rows

MAX_OWN_ERROR = 0.25
"""Rows whose own interval is wider are left out."""
MIN_PAIRS = 20
"""With fewer pairs of a pace, nothing is fitted to them."""
MIN_ROWS = 5
"""Fewer rows of two runs, or of one technique in them, are not averaged."""
MOST_DEGREES = 30.0
"""The largest number of degrees of freedom that a fit gives: Student's t is nearly normal there."""
FEWEST_DEGREES = 2.1
"""With two or fewer, Student's t has no variance, so that means of rows could not be weighted."""
PACES = list(Pace)
WAITS = (0.05, 0.2, 0.5, 0.8, 1.0)
"""Bounds of the groups in which host-bound pairs are shown."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One configuration measured in two runs."""

    runs: tuple[str, str]
    configuration: tuple[str, ...]
    pace: Pace
    choices: Mapping[str, Any]
    log_ratio: float
    step_seconds: float
    own_errors: tuple[float, float]
    """Standard errors of both means by the trials' own steps."""
    log_energy_ratio: float | None
    """Of the energy per sample; None if it was not measured."""
    counted_seconds: float
    waits: float
    """The larger share of micro-batches after which the GPU ran out of work."""


def lines(options: Namespace) -> Iterator[str]:
    return report(pairs([(str(own), dataset_of(own)) for own in folders_below(options.runs)]))


def pairs(runs: Sequence[tuple[str, Dataset]]) -> list[Pair]:
    """Every configuration that two runs measured in equal environments, models and data."""
    tables = [(name, _by_configuration(dataset)) for name, dataset in runs]
    axes = {name: dataset.axes for name, dataset in runs}
    found = []
    for (name, first), (other, second) in itertools.combinations(tables, 2):
        for key in sorted(first.keys() & second.keys()):
            found.append(_pair((name, other), key, first[key], second[key], axes[name]))
    return [pair for pair in found if pair is not None]


def _by_configuration(dataset: Dataset) -> dict[tuple[str, ...], Row]:
    config = dataset.run.config
    setting = repr([config.get(part) for part in ("model", "data", "training_arguments")])
    rows = {}
    for row in ok_rows(dataset):
        if is_pace_known(row) and not has_any(flags_of(row), SHARED):
            rows[row["environment_id"], setting, full_label(dataset, row)] = row
    return rows


def is_pace_known(row: Row) -> bool:
    """Whether the row shows what ``pace_of`` returns.

    Old rows do not record launches. They count as launch-bound, but may be GPU-bound.
    """
    is_recorded = row.get("launch_bound_update_share") is not None
    return is_recorded or pace_of(row) is not Pace.LAUNCHES


def _pair(
    runs: tuple[str, str],
    configuration: tuple[str, ...],
    first: Row,
    second: Row,
    columns: Mapping[str, str],
) -> Pair | None:
    if not (_is_precise(first) and _is_precise(second)):
        return None
    errors = [row["samples_per_second_ci95"] for row in (first, second)]
    paces = (pace_of(first), pace_of(second))
    steps = [row["effective_batch"] / row["samples_per_second"] for row in (first, second)]
    return Pair(
        runs=runs,
        configuration=configuration,
        pace=max(paces, key=PACES.index),
        choices={axis: first.get(column) for axis, column in columns.items()},
        log_ratio=math.log(second["samples_per_second"] / first["samples_per_second"]),
        step_seconds=sum(steps) / 2,
        own_errors=(errors[0] / 1.96, errors[1] / 1.96),
        log_energy_ratio=_log_energy_ratio(first, second),
        counted_seconds=min(row.get("counted_seconds") or 0.0 for row in (first, second)),
        waits=max(row.get("host_bound_share") or 0.0 for row in (first, second)),
    )


def _log_energy_ratio(first: Row, second: Row) -> float | None:
    earlier, later = row_joules_per_sample(first), row_joules_per_sample(second)
    return math.log(later / earlier) if earlier and later else None


def _is_precise(row: Row) -> bool:
    error = row.get("samples_per_second_ci95")
    return error is not None and error <= MAX_OWN_ERROR


def report(found: Sequence[Pair]) -> Iterator[str]:
    """The fit of each pace, and what GPU-bound rows of a technique share."""
    for pace in Pace:
        of_pace = _beside_others([pair for pair in found if pair.pace is pace])
        if len(of_pace) <= MIN_PAIRS:
            yield f"{pace}: {len(of_pace)} pairs: too few to fit"
            continue
        variation = fit(of_pace)
        yield f"{pace}: {len(of_pace)} pairs: {_described(variation, of_pace)}"
        if pace is Pace.HOST:
            yield from by_waits(of_pace)
        if pace is Pace.GPU:
            yield from shared_by_techniques(of_pace, variation)
        # The sensor's delay is a constant time, which is a share of the counted steps.
        of_energy = [
            replace(
                pair,
                log_ratio=pair.log_energy_ratio,
                step_seconds=pair.counted_seconds,
                own_errors=(0.0, 0.0),
            )
            for pair in of_pace
            if pair.log_energy_ratio is not None
        ]
        yield f"{pace}, energy: {len(of_energy)} pairs: {_described(fit(of_energy), of_energy)}"


def by_waits(found: Sequence[Pair]) -> Iterator[str]:
    """How far two trials are apart, by how often the GPU waits."""
    for low, high in itertools.pairwise(WAITS):
        apart = [abs(pair.log_ratio) for pair in found if low < pair.waits <= high]
        if len(apart) > MIN_PAIRS:
            half, most = np.quantile(apart, (0.5, 0.95))
            yield (
                f"the GPU waits after {low:.0%} to {high:.0%}: {len(apart)} pairs, half within "
                f"{half:.1%}, 95 % within {most:.1%}"
            )


def _beside_others(found: Sequence[Pair]) -> list[Pair]:
    """Those of two runs with enough of them to know what they share."""
    return [pair for rows in _by_runs(found) if len(rows) >= MIN_ROWS for pair in rows]


def fit(found: Sequence[Pair], near: Variation | None = None) -> Variation:
    """The likeliest spread of single trials beside what the rows of two runs share, and of that.

    ``near`` is where to look for it; None: everywhere.
    """
    by_runs = _by_runs(found)
    ordered = [pair for rows in by_runs for pair in rows]
    shared = [np.median([pair.log_ratio for pair in rows]) for rows in by_runs]
    ratio = np.array([pair.log_ratio for pair in ordered])
    ratio -= np.repeat(shared, [len(rows) for rows in by_runs])
    weights = _weights(ordered)
    known = _steps_and_errors(ordered)

    def cost(logs: np.ndarray) -> float:
        variation = _variation(logs)
        spread = _scale(*known, variation)
        density = stats.t.logpdf(ratio / spread, variation.degrees_of_freedom) - np.log(spread)
        return float(-(weights * density).sum())

    starts: Iterable[tuple[float, ...]] = itertools.product((0.003, 0.03), (0.0005, 0.005), (3, 20))
    if near is not None:
        starts = [(near.relative, near.seconds, near.degrees_of_freedom)]
    fits = [optimize.minimize(cost, np.log(start), method="Nelder-Mead") for start in starts]
    within = _variation(min(fits, key=lambda fit: fit.fun).x)
    return replace(within, between_runs=_beyond([_weighted_mean(rows, within) for rows in by_runs]))


def _weights(found: Sequence[Pair]) -> np.ndarray:
    """A configuration of k runs has k (k - 1) / 2 pairs, but k - 1 independent differences."""
    runs = defaultdict(set)
    for pair in found:
        runs[pair.configuration].update(pair.runs)
    return np.array([2 / len(runs[pair.configuration]) for pair in found])


def _variation(logs: np.ndarray) -> Variation:
    """The fit works on logarithms, which keeps every figure positive."""
    relative, seconds, degrees = np.exp(np.clip(logs, -12, math.log(MOST_DEGREES)))
    degrees = max(degrees, FEWEST_DEGREES)
    return Variation(float(relative), float(seconds), float(degrees), 0.0)


def _steps_and_errors(found: Sequence[Pair]) -> tuple[np.ndarray, np.ndarray]:
    """Of each pair, the seconds of a step, and the error of its difference by both trials' own."""
    steps = np.array([pair.step_seconds for pair in found])
    return steps, np.array([math.hypot(*pair.own_errors) for pair in found])


def _scale(steps: np.ndarray, own: np.ndarray, variation: Variation) -> np.ndarray:
    """The scale of each pair's difference."""
    # Two trials differ by sqrt(2) times the spread of one.
    constant = variation.seconds / steps
    scale: np.ndarray = np.sqrt(own**2 + 2 * variation.relative**2 + 2 * constant**2)
    return scale


def _described(variation: Variation, found: Sequence[Pair]) -> str:
    out_of_sample = []
    recordings = list(map(_recordings, found))
    for run in sorted(set().union(*recordings)):
        has_it = [run in own for own in recordings]
        of_run = list(itertools.compress(found, has_it))
        others = [pair for pair, has in zip(found, has_it, strict=True) if not has]
        if len(_beside_others(others)) > MIN_PAIRS:
            out_of_sample += _hits(of_run, fit(_beside_others(others), variation))
    return (
        f"{_weights(found).sum():.0f} independent, {variation.relative:.2%} and "
        f"{1e3 * variation.seconds:.1f} ms, "
        f"{variation.degrees_of_freedom:.1f} degrees of freedom, two runs "
        f"{variation.between_runs:.2%} apart; the printed ± of one holds the "
        f"other in {np.mean(_hits(found, variation)):.1%}, and in {np.mean(out_of_sample):.1%} "
        "if it is fitted without the run"
    )


def _recordings(pair: Pair) -> set[str]:
    """The recorded runs of a pair; a run may have several parts, in folders below its own.

    The folder of a run begins with its date.
    """
    return {
        next((part for part in Path(run).parts if part[:4].isdigit()), run) for run in pair.runs
    }


def _hits(found: Sequence[Pair], variation: Variation) -> list[bool]:
    """Whether each trial's printed interval (±) holds the other trial of its pair."""
    quantile = stats.t.ppf(0.975, variation.degrees_of_freedom)
    hits = []
    for pair in found:
        between = math.hypot(variation.relative, variation.seconds / pair.step_seconds)
        for own in pair.own_errors:
            difference = math.hypot(own, between) * math.sqrt(2)
            width = quantile * math.hypot(difference, variation.between_runs)
            hits.append(abs(math.expm1(pair.log_ratio)) <= width)
    return hits


def shared_by_techniques(found: Sequence[Pair], variation: Variation) -> Iterator[str]:
    """What the rows of one technique in two runs share beyond what their own spread explains."""
    of_techniques = []
    for rows in _by_runs(found):
        of_techniques += list(_technique_differences(rows, variation))
    if of_techniques:
        yield (
            f"{len(of_techniques)} techniques in pairs of runs, each against the other rows: "
            f"a technique's GPU-bound rows share {_beyond(of_techniques):.2%}"
        )


def _by_runs(found: Sequence[Pair]) -> list[list[Pair]]:
    by_runs: dict[tuple[str, str], list[Pair]] = defaultdict(list)
    for pair in found:
        by_runs[pair.runs].append(pair)
    return list(by_runs.values())


def _weighted_mean(rows: Sequence[Pair], variation: Variation) -> tuple[float, float]:
    """Mean log ratio, weighted by inverse variances as ``compare`` does, and its standard error."""
    degrees = variation.degrees_of_freedom
    scale = _scale(*_steps_and_errors(rows), variation)
    weights = (scale * math.sqrt(degrees / (degrees - 2))) ** -2
    ratios = np.array([pair.log_ratio for pair in rows])
    return float((weights * ratios).sum() / weights.sum()), float(weights.sum() ** -0.5)


def _technique_differences(
    rows: Sequence[Pair], variation: Variation
) -> Iterator[tuple[float, float]]:
    """The mean of each technique's rows minus that of the other rows, and its standard error."""
    techniques = {item for pair in rows for item in _techniques(pair)}
    for technique in sorted(techniques):
        group = [pair for pair in rows if technique in _techniques(pair)]
        others = [pair for pair in rows if technique not in _techniques(pair)]
        if min(len(group), len(others)) >= MIN_ROWS:
            mean, error = _weighted_mean(group, variation)
            other_mean, other_error = _weighted_mean(others, variation)
            yield mean - other_mean, math.hypot(error, other_error)


def _techniques(pair: Pair) -> set[tuple[str, str]]:
    return {(axis, str(value)) for axis, value in pair.choices.items()}


def _beyond(means: Sequence[tuple[float, float]]) -> float:
    """The standard deviation of means beyond their own standard errors, by method of moments."""
    # The expected square of a mean is the shared variance plus the mean's own.
    excess = [mean**2 - error**2 for mean, error in means]
    return math.sqrt(max(sum(excess) / len(excess), 0.0))
