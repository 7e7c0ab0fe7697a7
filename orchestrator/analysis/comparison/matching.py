"""Which configurations of two runs belong together: those that choose the same techniques."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from jobs.record import Outcome
from jobs.techniques import AXES
from orchestrator.analysis.configuration import Configuration, choices_of
from orchestrator.analysis.dataset import Dataset
from orchestrator.analysis.repeatability import Pace, pace_of
from orchestrator.storage.tables.rows import Row

Result = Configuration | Row
"""A configuration that ended ok, else the row of its trial."""
Pair = tuple[Configuration, Configuration]
"""One configuration that ended ok in both runs, before and after."""
Key = tuple[tuple[str, str], ...]
"""The choices that depart from the defaults, in order of their axes."""


def results_by_key(run: Dataset) -> dict[Key, Result]:
    """The result of each configuration of a run. A configuration that was only skipped has none."""
    results: dict[Key, Result] = {}
    for row in run.rows:
        if row["outcome"] not in (Outcome.OK, Outcome.SKIPPED):
            results[_key(choices_of(row, run.axes))] = row
    # A repeat that ended ok replaces a failed one, so the ok configurations are added last.
    if run.main is not None:
        for configuration in run.main.configurations:
            results[_key(configuration.choices)] = configuration
    return results


def _key(choices: Mapping[str, Any]) -> Key:
    """The choices that are not the default of their axis.

    A run may lack an axis that the other has. It then trained with the default of this axis.
    """
    changed = []
    for axis, value in choices.items():
        if axis not in AXES or str(value) != str(AXES[axis].default):
            changed.append((axis, str(value)))
    return tuple(sorted(changed))


def pace_of_pair(pair: Pair) -> Pace:
    """What limits the speed of a pair. If the two differ, the less repeatable one is returned."""
    # The members of ``Pace`` are in order of falling repeatability.
    paces = list(Pace)
    return max((pace_of(configuration.row) for configuration in pair), key=paces.index)


def log_speed_ratio(pair: Pair) -> float:
    """Logarithm of the speed after divided by the speed before.

    In the logarithm, a doubling and a halving are equally far from zero.
    """
    before, after = pair
    return math.log(after.samples_per_second / before.samples_per_second)
