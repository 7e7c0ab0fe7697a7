"""The comparison of two runs: configurations are matched, and each kind of change is looked for.

The speed of host-bound rows is not compared, because it is the speed of the host. The speed of rows
without a GPU is not compared either, because other programs share the processor. The speed of
launch-bound rows is compared only if the hosts are equal.
"""

from __future__ import annotations

import math

from orchestrator.analysis.comparison.changes import loss_changes, memory_changes, outcome_changes
from orchestrator.analysis.comparison.matching import Pair, Result, pace_of_pair, results_by_key
from orchestrator.analysis.comparison.result import BETTER, WORSE, Change, Comparison
from orchestrator.analysis.comparison.run_differences import HOSTS, SCHEDULE, differences
from orchestrator.analysis.comparison.speed import (
    common_shift,
    single_changes,
    smallest_visible,
    technique_shifts,
)
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.dataset import Dataset
from orchestrator.analysis.repeatability import Pace

MAX_ERROR = 0.25
"""If the 95 % interval of a row's mean step is wider than this share, its speed is not compared."""


def compare(before: Dataset, after: Dataset, *, different_hosts: bool = False) -> Comparison:
    """Match two runs by configuration.

    The caller decides whether their hardware may be compared.

    ``different_hosts``: even if the hosts differ, compare speeds that depend partly on the host.
    """
    earlier, later = results_by_key(before), results_by_key(after)
    results = [(earlier[key], later[key]) for key in earlier if key in later]
    matched = _ended_ok_twice(results)
    precise = [pair for pair in matched if _is_precise(pair)]
    without_gpu = [pair for pair in precise if pace_of_pair(pair) is Pace.CPU]
    host_bound = [pair for pair in precise if pace_of_pair(pair) is Pace.HOST]
    gpu_bound = [pair for pair in precise if pace_of_pair(pair) is Pace.GPU]
    of_device = [pair for pair in precise if pace_of_pair(pair) not in (Pace.HOST, Pace.CPU)]
    same_host = different_hosts or not any(differences(before, after, HOSTS))
    judged = of_device if same_host else gpu_bound
    same_schedule = not any(differences(before, after, SCHEDULE))
    changes = [
        *single_changes(before, judged),
        *outcome_changes(before, after, results),
        *memory_changes(before, matched),
        *loss_changes(before, after, matched, same_schedule=same_schedule),
    ]
    return Comparison(
        matched=len(matched),
        unsteady=len(matched) - len(precise),
        host_bound=len(host_bound),
        without_gpu=len(without_gpu),
        other_hosts=len(of_device) - len(judged),
        losses_compared=same_schedule,
        changes=tuple(sorted(changes, key=_order)),
        shift=common_shift(gpu_bound),
        technique_shifts=tuple(technique_shifts(gpu_bound)),
        smallest_visible=smallest_visible(gpu_bound, len(judged)),
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
    errors = [own.row.get("samples_per_second_ci95") for own in pair]
    # An error of exactly 0 is valid: on a coarse clock, all steps can take the same time.
    return all(error is not None and error < MAX_ERROR for error in errors)


def _order(change: Change) -> tuple[int, float]:
    """Sort key: the worst kind first, within a kind the largest change first."""
    kinds = (*WORSE, *BETTER)
    # The logarithm makes a halving as large a change as a doubling.
    return kinds.index(change.kind), -abs(math.log(change.ratio or 1))
