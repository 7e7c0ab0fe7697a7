"""How well a search did on a table: the share of the Pareto front that it found, and whether its
reasons hold."""

import math
import re
import statistics
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from jobs.record import Outcome, TrialRecord
from jobs.spec import TrainingRecipe
from orchestrator.analysis.pareto import pareto_front
from orchestrator.units import GIB
from tests.benchmarks.grids import Table

TOLERANCE = 0.02
"""A point is as good as another one within this share of its memory and its speed."""
BUDGETS = 200
BOUNDS = re.compile(r"at least ([\d.]+) GiB(?: and reach at most ([\d.]+) samples/s)?")
"""The bounds in the reason of a skipped row (``orchestrator.search.frontier.pruning_reasons``)."""


def front(table: Table) -> list[TrialRecord]:
    """The points on the Pareto fronts of memory and speed, of each training recipe."""
    points: list[TrialRecord] = []
    for records in _by_recipe(table.values()).values():
        points += pareto_front(records, (_little_memory, _speed))
    return points


def _by_recipe(records: Iterable[TrialRecord]) -> dict[TrainingRecipe, list[TrialRecord]]:
    """Training recipe -> its trials that ended ok."""
    groups: dict[TrainingRecipe, list[TrialRecord]] = {}
    for record in records:
        if record.outcome is Outcome.OK:
            groups.setdefault(record.spec.training_recipe, []).append(record)
    return groups


def _memory(record: TrialRecord) -> float:
    return float(record.measurements["device_peak_bytes"])


def _little_memory(record: TrialRecord) -> float:
    return -_memory(record)


def _speed(record: TrialRecord) -> float:
    return float(record.measurements["samples_per_second"])


def recall(
    table: Table,
    asked: Iterable[str],
    tolerance: float = TOLERANCE,
    among: Callable[[TrialRecord], bool] = lambda point: True,
) -> float:
    """Share of the table's front points that a trial asked for, of their recipe, is as good as."""
    points = list(filter(among, front(table)))
    measured = _by_recipe(table[trial_id] for trial_id in asked)
    found = 0
    for point in points:
        rivals = measured.get(point.spec.training_recipe, ())
        found += any(_is_as_good(rival, point, tolerance) for rival in rivals)
    return found / len(points) if points else 1.0


def _is_as_good(record: TrialRecord, point: TrialRecord, tolerance: float) -> bool:
    needs_no_more = _memory(record) <= (1 + tolerance) * _memory(point)
    return needs_no_more and _speed(record) >= (1 - tolerance) * _speed(point)


def height(table: Table, asked: Iterable[str], tolerance: float = TOLERANCE) -> float:
    """How high the front of the trials asked for is, as a share of the table's front.

    The mean, over training recipes and over memory budgets evenly spaced in the logarithm, of the
    best speed asked for divided by the best speed.
    """
    known = set(asked)
    heights = [
        _height(records, known, tolerance) for records in _by_recipe(table.values()).values()
    ]
    return float(np.mean(heights))


def _height(records: Sequence[TrialRecord], known: set[str], tolerance: float) -> float:
    memory = np.array([_memory(record) for record in records])
    speed = np.array([_speed(record) for record in records])
    is_known = np.array([record.trial_id in known for record in records])
    # The geometric spacing can miss its own ends by rounding.
    budgets = np.geomspace(memory.min(), memory.max(), BUDGETS).clip(memory.min())
    best = np.where(memory[:, None] <= budgets, speed[:, None], 0.0).max(axis=0)
    fits = is_known[:, None] & (memory[:, None] <= (1 + tolerance) * budgets)
    reached = np.where(fits, speed[:, None], 0.0).max(axis=0)
    return float(np.minimum(1.0, reached / best).mean())


def contradicted(skipped: Iterable[TrialRecord], truth: Table) -> float:
    """Share of the reasons with a bound that the truth is beyond, by more than the tolerance.

    Trials whose true speed is not known are left out.
    """
    wrong = []
    for own in skipped:
        bounds = BOUNDS.search(own.reason)
        figures = truth[own.trial_id].measurements
        if bounds is not None and "samples_per_second" in figures:
            least_memory = (1 - TOLERANCE) * float(bounds[1]) * GIB
            highest_speed = (1 + TOLERANCE) * float(bounds[2] or math.inf)
            is_smaller = figures["device_peak_bytes"] < least_memory
            wrong.append(is_smaller or figures["samples_per_second"] > highest_speed)
    return statistics.fmean(wrong) if wrong else 0.0
