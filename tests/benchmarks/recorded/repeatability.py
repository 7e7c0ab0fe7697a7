"""How far a second trial of a configuration is from the first, by what sets the pace of its steps.

Every pair of runs is compared configuration by configuration. The difference of two speeds is taken
as Student's t with a scale of three parts: the trials' own intervals, a share of the step, and a
time that does not grow with the step. The likeliest share, time and degrees of freedom are printed.
Then, what all GPU-bound rows of two runs share. The figures are those of
``orchestrator.analysis.repeatability``.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import optimize, stats

from jobs.flags import SHARED, flags_of, has_any
from orchestrator.analysis.dataset import Dataset, load_dataset
from orchestrator.analysis.repeatability import Pace, pace_of
from orchestrator.storage.tables.rows import Row
from tests.benchmarks.recorded.runs import full_label, ok_rows

MAX_OWN_ERROR = 0.25
"""Rows whose own interval is wider are left out."""
PACES = list(Pace)


@dataclass(frozen=True, slots=True)
class Pair:
    """One configuration measured in two runs."""

    runs: tuple[str, str]
    pace: Pace
    log_ratio: float
    step_seconds: float
    own_error: float
    """Standard error of the difference by both trials' own steps."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the subcommand takes."""
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")


def lines(options: argparse.Namespace) -> Iterator[str]:
    """The fitted figures of all pairs of runs below these folders."""
    folders = sorted({path.parent for run in options.runs for path in run.rglob("trials.parquet")})
    return report(pairs([(str(folder), load_dataset(folder)) for folder in folders]))


def pairs(runs: Sequence[tuple[str, Dataset]]) -> list[Pair]:
    """Every configuration that two runs measured in equal environments, models and data."""
    tables = [(name, _by_configuration(dataset)) for name, dataset in runs]
    found = []
    for (name, first), (other, second) in itertools.combinations(tables, 2):
        for key in first.keys() & second.keys():
            found.append(_pair((name, other), first[key], second[key]))
    return [pair for pair in found if pair is not None]


def _by_configuration(dataset: Dataset) -> dict[tuple[str, ...], Row]:
    config = dataset.run.config
    setting = repr([config.get(part) for part in ("model", "data", "training_arguments")])
    rows = {}
    for row in ok_rows(dataset):
        if not has_any(flags_of(row), SHARED):
            rows[row["environment_id"], setting, full_label(dataset, row)] = row
    return rows


def _pair(runs: tuple[str, str], first: Row, second: Row) -> Pair | None:
    errors = [row.get("samples_per_second_ci95") or math.inf for row in (first, second)]
    if max(errors) > MAX_OWN_ERROR:
        return None
    slower = max((pace_of(first), pace_of(second)), key=PACES.index)
    steps = [row["effective_batch"] / row["samples_per_second"] for row in (first, second)]
    return Pair(
        runs=runs,
        pace=slower,
        log_ratio=math.log(second["samples_per_second"] / first["samples_per_second"]),
        step_seconds=sum(steps) / 2,
        own_error=math.hypot(*errors) / 1.96,
    )


def report(found: Sequence[Pair]) -> Iterator[str]:
    """The fit of each pace, and the shift that GPU-bound rows of two runs share."""
    for pace in Pace:
        of_pace = [pair for pair in found if pair.pace is pace]
        if len(of_pace) > 20:
            yield from _fit(pace, of_pace)
    yield from _shift([pair for pair in found if pair.pace is Pace.GPU])


def _fit(pace: Pace, found: Sequence[Pair]) -> Iterator[str]:
    ratio = np.array([pair.log_ratio for pair in found])
    step = np.array([pair.step_seconds for pair in found])
    own = np.array([pair.own_error for pair in found])

    def scale(relative: float, seconds: float) -> np.ndarray:
        # Two trials differ by sqrt(2) times the spread of one.
        return np.sqrt(own**2 + 2 * relative**2 + 2 * (seconds / step) ** 2)

    def cost(logs: np.ndarray) -> float:
        relative, seconds, degrees = np.exp(np.clip(logs, -12, 3.4))
        spread = scale(relative, seconds)
        density = stats.t.logpdf(ratio / spread, degrees) - np.log(spread)
        return float(-density.sum())

    starts = itertools.product((0.003, 0.03), (0.0005, 0.005), (3, 20))
    fits = [optimize.minimize(cost, np.log(start), method="Nelder-Mead") for start in starts]
    best = min(fits, key=lambda fit: fit.fun)
    relative, seconds, degrees = np.exp(np.clip(best.x, -12, 3.4))
    limit = stats.t.ppf(0.975, degrees) * scale(relative, seconds)
    inside = float(np.mean(np.abs(ratio) <= limit))
    yield (
        f"{pace}: {len(found)} pairs: {relative:.2%} of the step and {1e3 * seconds:.1f} ms, "
        f"{degrees:.1f} degrees of freedom; {inside:.1%} inside their 95 % interval"
    )


def _shift(found: Sequence[Pair]) -> Iterator[str]:
    """The spread of the runs' mean differences beyond what their rows explain."""
    by_runs: dict[tuple[str, str], list[Pair]] = defaultdict(list)
    for pair in found:
        by_runs[pair.runs].append(pair)
    means, errors = [], []
    for rows in by_runs.values():
        if len(rows) >= 10:
            ratios = [pair.log_ratio for pair in rows]
            means.append(float(np.mean(ratios)))
            errors.append(float(np.std(ratios, ddof=1) / math.sqrt(len(ratios))))
    if means:
        # Method of moments: the means' variance is the shared part's plus their own.
        beyond = np.mean(np.square(means)) - np.mean(np.square(errors))
        yield f"{len(means)} pairs of runs: GPU-bound rows share {math.sqrt(max(beyond, 0)):.2%}"
