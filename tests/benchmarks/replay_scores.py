"""How well a search did on a table: the share of the Pareto front that it found, and its height."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from jobs.record import Outcome, TrialRecord
from jobs.spec import TrainingRecipe
from orchestrator.analysis.pareto import pareto_front
from tests.benchmarks.grids import Table

TOLERANCE = 0.02
"""A point is as good as another one within this share of its memory and its speed."""
BUDGETS = 200


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
