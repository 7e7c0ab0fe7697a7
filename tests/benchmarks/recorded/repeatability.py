"""How far a second trial of a configuration is from the first, by what sets the pace of its steps.

Every pair of runs is compared configuration by configuration. Rows whose pace is not known are left
out. All rows of two runs share their median difference. How far a row is from it is taken as
Student's t with a scale of three parts: the trials' own intervals, a share of the step, and a time
that does not grow with the step. The likeliest share, time and degrees of freedom are printed, and
how far the rows of two runs, and then those of one technique in them, are apart together. The scale
of host-bound rows grows with a power of the share of micro-batches after which the GPU waits.

A host may be too slow for a row that another host kept busy. What that adds is fitted to all pairs
of which one trial has the pace, and each printed interval is judged by the pace of its own trial.

The same is fitted to the energy per sample. ``orchestrator.analysis.repeatability`` has the printed
figures.
"""

import itertools
import math
from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy import optimize, special

from jobs.flags import SHARED, flags_of, has_any
from orchestrator.analysis.dataset import Dataset
from orchestrator.analysis.objectives import joules_per_sample
from orchestrator.analysis.repeatability import (
    BETWEEN_TRIALS,
    Pace,
    Variation,
    pace_of,
    step_seconds,
    waits,
)
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
WAITS = (0.05, 0.1, 0.2, 0.5, 0.8, 1.0)
"""Bounds of the groups in which host-bound trials are shown."""
STEPS = (0, 0.08, 0.16, 0.3, 1, 1000)
"""The same of others, in seconds of a step."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One configuration measured in two runs."""

    runs: tuple[str, str]
    configuration: tuple[str, ...]
    paces: tuple[Pace, Pace]
    choices: Mapping[str, Any]
    log_ratio: float
    steps: tuple[float, float]
    """Seconds of a step in each trial."""
    constant_over: float
    """The seconds of which the constant part is a share: of a step, or all that were counted."""
    own_errors: tuple[float, float]
    """Standard errors of both means by the trials' own steps."""
    log_energy_ratio: float | None
    """Of the energy per sample; None if it was not measured."""
    counted_seconds: float
    waits: tuple[float, float]
    """``repeatability.waits`` of each trial."""

    @property
    def pace(self) -> Pace:
        """Of the trial that waited more."""
        return max(self.paces, key=PACES.index)


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
    steps = (step_seconds(first), step_seconds(second))
    earlier, later = joules_per_sample(first), joules_per_sample(second)
    return Pair(
        runs=runs,
        configuration=configuration,
        paces=(pace_of(first), pace_of(second)),
        choices={axis: first.get(column) for axis, column in columns.items()},
        log_ratio=math.log(second["samples_per_second"] / first["samples_per_second"]),
        steps=steps,
        constant_over=sum(steps) / 2,
        own_errors=(errors[0] / 1.96, errors[1] / 1.96),
        log_energy_ratio=math.log(later / earlier) if earlier and later else None,
        counted_seconds=min(row.get("counted_seconds") or 0.0 for row in (first, second)),
        waits=(waits(first), waits(second)),
    )


def _is_precise(row: Row) -> bool:
    error = row.get("samples_per_second_ci95")
    return error is not None and error <= MAX_OWN_ERROR


def report(found: Sequence[Pair]) -> Iterator[str]:
    """The fit of each pace, and what GPU-bound rows of a technique share."""
    for pace in Pace:
        of_pace = _beside_others([pair for pair in found if pair.pace is pace])
        printed = [pair for pair in found if pace in pair.paces]
        if len(of_pace) <= MIN_PAIRS:
            yield f"{pace}: {len(of_pace)} pairs: too few to fit"
            continue
        variation = whole_fit(pace, of_pace, printed)
        yield f"{pace}: {len(of_pace)} pairs: {_described(pace, variation, of_pace, printed)}"
        yield from by_group(pace, variation, printed)
        if pace is Pace.GPU:
            yield from shared_by_techniques(of_pace, variation)
        # The sensor's delay is a constant time, which is a share of the counted steps.
        energy, of_energy = _of_energy(of_pace), _of_energy(printed)
        fitted = whole_fit(pace, energy, of_energy)
        described = _described(pace, fitted, energy, of_energy)
        yield f"{pace}, energy: {len(energy)} pairs: {described}"


def _of_energy(found: Iterable[Pair]) -> list[Pair]:
    """The same pairs, of which the energy per sample is compared."""
    return [
        replace(
            pair,
            log_ratio=pair.log_energy_ratio,
            constant_over=pair.counted_seconds,
            own_errors=(0.0, 0.0),
        )
        for pair in found
        if pair.log_energy_ratio is not None
    ]


def by_group(pace: Pace, variation: Variation, found: Sequence[Pair]) -> Iterator[str]:
    """Intervals by how often the GPU waits, of host-bound trials, or by the time of a step."""
    is_host = pace is Pace.HOST
    sides = [
        (pair.waits[side] if is_host else pair.steps[side], pair, side)
        for pair in found
        for side in _sides(pair, pace)
    ]
    for low, high in itertools.pairwise(WAITS if is_host else STEPS):
        group = [(pair, side) for value, pair, side in sides if low < value <= high]
        if len(group) <= MIN_PAIRS:
            continue
        held = np.mean([_is_held(*each, variation) for each in group])
        width = np.median([_half_width(*each, variation) for each in group])
        apart = np.quantile([abs(pair.log_ratio) for pair, _ in group], 0.95)
        name = (
            f"the GPU waits after {low:.0%} to {high:.0%}"
            if is_host
            else f"steps of {low:g} to {high:g} s"
        )
        yield (
            f"{name}: {len(group)} trials, 95 % of others within {apart:.1%}; ± {width:.1%} in the "
            f"median holds {held:.1%}"
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
    scale_by = _scale(ordered)
    is_host = ordered[0].pace is Pace.HOST

    def cost(logs: np.ndarray) -> float:
        variation = _variation(logs)
        return _cost(ratio, scale_by(variation), variation, weights)

    parts = ((0.003, 0.03), (0.0005, 0.005), (3, 20), (0.3,))
    if near is not None:
        figures = (near.relative, near.seconds, near.degrees_of_freedom, near.waits_power)
        parts = tuple((figure,) for figure in figures)
    starts = itertools.product(*(parts if is_host else parts[:3]))
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
    relative, seconds, degrees, *powers = map(
        float, np.exp(np.clip(logs, -12, math.log(MOST_DEGREES)))
    )
    [power] = powers or [0.0]
    return Variation(relative, seconds, max(degrees, FEWEST_DEGREES), 0.0, waits_power=power)


def _cost(
    ratios: np.ndarray, scale: np.ndarray, variation: Variation, weights: np.ndarray
) -> float:
    """Minus the weighted logarithm of Student's density, as ``scipy.stats`` has it, but fast."""
    degrees = variation.degrees_of_freedom
    constant = special.gammaln((degrees + 1) / 2) - special.gammaln(degrees / 2)
    constant -= math.log(degrees * math.pi) / 2
    tails = (degrees + 1) / 2 * np.log1p((ratios / scale) ** 2 / degrees)
    return float((weights * (tails + np.log(scale) - constant)).sum())


def _scale(found: Sequence[Pair]) -> Callable[[Variation], np.ndarray]:
    """The scale of each pair's difference by a variation, of which a fit tries hundreds."""
    own = np.array([math.hypot(*pair.own_errors) for pair in found])
    over = np.array([pair.constant_over for pair in found])
    waits = _most_waits(found)

    def by(variation: Variation) -> np.ndarray:
        relative = variation.relative * waits**variation.waits_power
        # Two trials differ by sqrt(2) times the spread of one.
        scale: np.ndarray = np.sqrt(own**2 + 2 * relative**2 + 2 * (variation.seconds / over) ** 2)
        return scale

    return by


def _most_waits(found: Sequence[Pair]) -> np.ndarray:
    return np.array([max(pair.waits) for pair in found])


def whole_fit(
    pace: Pace, of_pace: Sequence[Pair], printed: Sequence[Pair], near: Variation | None = None
) -> Variation:
    """``fit``, and the likeliest ``slow_host_seconds`` of all trials that had this pace."""
    variation = fit(of_pace, near)
    if pace is Pace.HOST:
        return variation
    sides = [(pair, side) for pair in printed for side in _sides(pair, pace)]
    weights = _weights([pair for pair, _ in sides])
    ratios = np.array([pair.log_ratio for pair, _ in sides])

    usual = np.array([_half_scale(pair, side, variation) for pair, side in sides])
    steps = np.array([pair.steps[side] for pair, side in sides])

    def cost(log_seconds: float) -> float:
        scale = np.hypot(usual, _slow(math.exp(log_seconds), steps))
        return _cost(ratios, scale, variation, weights)

    best = optimize.minimize_scalar(cost, bounds=(-7, 0), method="bounded")
    return replace(variation, slow_host_seconds=math.exp(best.x))


def _described(
    pace: Pace, variation: Variation, of_pace: Sequence[Pair], printed: Sequence[Pair]
) -> str:
    held = _held(printed, pace, variation)
    on_fast_hosts = _held(printed, pace, replace(variation, slow_host_seconds=0.0))
    out_of_sample = []
    for run in sorted(set().union(*map(_recordings, printed))):
        others = _beside_others([pair for pair in of_pace if run not in _recordings(pair)])
        if len(others) > MIN_PAIRS:
            known = [pair for pair in printed if run not in _recordings(pair)]
            fitted = whole_fit(pace, others, known, variation)
            unseen = [pair for pair in printed if run in _recordings(pair)]
            out_of_sample += _held(unseen, pace, fitted)
    return (
        f"{_weights(of_pace).sum():.0f} independent, {variation.relative:.2%} and "
        f"{1e3 * variation.seconds:.1f} ms, "
        f"{variation.degrees_of_freedom:.1f} degrees of freedom, two runs "
        f"{variation.between_runs:.2%} apart, a slow host {1e3 * variation.slow_host_seconds:.1f} "
        f"ms, power of waits {variation.waits_power:.2f}; without the slow host, ± holds "
        f"{np.mean(on_fast_hosts):.1%}; the printed ± of {len(held)} trials holds the other in "
        f"{np.mean(held):.1%}, and in {np.mean(out_of_sample):.1%} if it is "
        "fitted without the run"
    )


def _recordings(pair: Pair) -> set[str]:
    """The recorded runs of a pair; a run may have several parts, in folders below its own.

    The folder of a run begins with its date.
    """
    return {_recording(run) for run in pair.runs}


@cache
def _recording(run: str) -> str:
    return next((part for part in Path(run).parts if part[:4].isdigit()), run)


def _held(found: Sequence[Pair], pace: Pace, variation: Variation) -> list[bool]:
    """Whether the printed interval (±) of each trial of this pace holds the other of its pair."""
    return [_is_held(pair, side, variation) for pair in found for side in _sides(pair, pace)]


def _sides(pair: Pair, pace: Pace) -> list[int]:
    return [side for side in (0, 1) if pair.paces[side] is pace]


def _is_held(pair: Pair, side: int, variation: Variation) -> bool:
    ratio = -pair.log_ratio if side else pair.log_ratio
    return abs(math.expm1(ratio)) <= _half_width(pair, side, variation)


def _half_width(pair: Pair, side: int, variation: Variation) -> float:
    quantile = special.stdtrit(variation.degrees_of_freedom, 0.975)
    return float(quantile) * _half_scale(pair, side, variation)


def _half_scale(pair: Pair, side: int, variation: Variation) -> float:
    """The scale of the difference from one more trial, as one trial of the pair knows it."""
    waiting = pair.waits[side] ** variation.waits_power
    between = math.hypot(waiting * variation.relative, variation.seconds / pair.constant_over)
    slow = float(_slow(variation.slow_host_seconds, pair.steps[side]))
    difference = math.hypot(pair.own_errors[side], between) * math.sqrt(2)
    return math.hypot(difference, waiting * variation.between_runs, slow)


def _slow(seconds: float, steps: Any) -> Any:
    """What a slow host adds to the scale of each step's differences."""
    return np.minimum((seconds / steps) ** 2, BETWEEN_TRIALS[Pace.HOST].between_runs)


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
    waiting = _most_waits(rows) ** variation.waits_power
    scale = _scale(rows)(variation) / waiting
    weights = (scale * math.sqrt(degrees / (degrees - 2))) ** -2
    ratios = np.array([pair.log_ratio for pair in rows]) / waiting
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
