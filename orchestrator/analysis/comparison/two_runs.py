"""The comparison of two runs: configurations are matched, then judged one kind of change at a time.

Host-bound rows are not judged by speed: their speed is the host's. Launch-bound rows are judged
only between equal hosts.
"""

from __future__ import annotations

import math

from orchestrator.analysis.comparison.changes import BETTER, WORSE, Change, Comparison
from orchestrator.analysis.comparison.losses import loss_changes
from orchestrator.analysis.comparison.memory import memory_changes
from orchestrator.analysis.comparison.outcomes import outcome_changes
from orchestrator.analysis.comparison.pairs import (
    Pair,
    Result,
    pace_of_pair,
    results_by_key,
)
from orchestrator.analysis.comparison.run_differences import HOSTS, SCHEDULE, differences
from orchestrator.analysis.comparison.speed import speed_changes
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.dataset import Dataset
from orchestrator.analysis.repeatability import Pace

MAX_ERROR = 0.25
"""A row whose mean step is known no better than this is not judged by its speed."""


def compare(before: Dataset, after: Dataset, *, different_hosts: bool = False) -> Comparison:
    """Match two runs by configuration.

    Whether their hardware may be compared is for the caller to judge.

    ``different_hosts``: judge the speeds of rows that are not GPU-bound even if the hosts differ.
    """
    earlier, later = results_by_key(before), results_by_key(after)
    results = [(earlier[key], later[key]) for key in earlier if key in later]
    both = _ended_ok_twice(results)

    # Which speeds can be judged: those that are known well, and whose pace no host sets.
    precise = [pair for pair in both if _is_precise(pair)]
    of_device = [pair for pair in precise if pace_of_pair(pair) is not Pace.HOST]
    same_host = different_hosts or not any(differences(before, after, HOSTS))
    judged = [pair for pair in of_device if same_host or pace_of_pair(pair) is Pace.GPU]
    speeds = speed_changes(before, judged)

    same_schedule = not any(differences(before, after, SCHEDULE))
    changes = [
        *outcome_changes(before, after, results),
        *speeds.single,
        *memory_changes(before, both),
        *loss_changes(before, after, both, same_schedule=same_schedule),
    ]
    return Comparison(
        matched=len(both),
        unsteady=len(both) - len(precise),
        host_bound=len(precise) - len(of_device),
        other_hosts=len(of_device) - len(judged),
        losses_compared=same_schedule,
        changes=tuple(sorted(changes, key=_order)),
        shift=speeds.shift,
        technique_shifts=speeds.of_techniques,
        smallest_visible=speeds.smallest_visible,
        only_before=len(earlier.keys() - later.keys()),
        only_after=len(later.keys() - earlier.keys()),
        differences=tuple(differences(before, after)),
    )


def _ended_ok_twice(results: list[tuple[Result, Result]]) -> list[Pair]:
    pairs: list[Pair] = []
    for earlier, later in results:
        if isinstance(earlier, Configuration) and isinstance(later, Configuration):
            pairs.append((earlier, later))
    return pairs


def _is_precise(pair: Pair) -> bool:
    return all((own.row.get("samples_per_second_ci95") or math.inf) < MAX_ERROR for own in pair)


def _order(change: Change) -> tuple[int, float]:
    """Sort key: the worst kind first, within a kind the largest change first."""
    kinds = (*WORSE, *BETTER)
    # The logarithm makes a halving as large a change as a doubling.
    return kinds.index(change.kind), -abs(math.log(change.ratio or 1))
