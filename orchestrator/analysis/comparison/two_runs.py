"""The comparison of two runs: configurations are matched, and each kind of change is looked for.

The speed of host-bound rows is not compared, because it is the speed of the host. The speed of rows
without a GPU is not compared either, because other programs share the processor. The speed of
launch-bound rows is compared only if the hosts are equal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

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
"""If the 95 % interval of a row's mean step is wider than this share, its speed is not compared."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Matching:
    """The configurations of both runs, and how many only one of them has."""

    results: list[tuple[Result, Result]]
    only_before: int
    only_after: int


@dataclass(frozen=True, slots=True)
class _Pairs:
    """The pairs that ended ok in both runs, and which of them remain after each filter."""

    matched: list[Pair]
    precise: list[Pair]
    """The matched pairs whose speeds are known well."""
    of_device: list[Pair]
    """The precise pairs that are not host-bound, on a GPU."""
    judged: list[Pair]
    """The pairs of ``of_device`` that are GPU-bound, or whose hosts are equal."""

    @property
    def unsteady(self) -> int:
        """Pairs whose speeds are not known well."""
        return len(self.matched) - len(self.precise)

    @property
    def host_bound(self) -> int:
        """Pairs whose speed the host limits."""
        return len(self.precise) - len(self.of_device) - self.without_gpu

    @property
    def without_gpu(self) -> int:
        """Pairs that were measured on the processor."""
        return sum(pace_of_pair(pair) is Pace.CPU for pair in self.precise)

    @property
    def other_hosts(self) -> int:
        """Pairs whose speed depends partly on the host, while the hosts differ."""
        return len(self.of_device) - len(self.judged)


def compare(before: Dataset, after: Dataset, *, different_hosts: bool = False) -> Comparison:
    """Match two runs by configuration.

    The caller decides whether their hardware may be compared.

    ``different_hosts``: even if the hosts differ, compare speeds that depend partly on the host.
    """
    matching = _match(before, after)
    same_host = different_hosts or not any(differences(before, after, HOSTS))
    pairs = _pairs(matching.results, same_host)
    speeds = speed_changes(before, pairs.judged)
    changes = [*speeds.single, *_other_changes(before, after, matching.results, pairs.matched)]
    return Comparison(
        matched=len(pairs.matched),
        unsteady=pairs.unsteady,
        host_bound=pairs.host_bound,
        without_gpu=pairs.without_gpu,
        other_hosts=pairs.other_hosts,
        losses_compared=_have_same_schedule(before, after),
        changes=tuple(sorted(changes, key=_order)),
        shift=speeds.shift,
        technique_shifts=speeds.of_techniques,
        smallest_visible=speeds.smallest_visible,
        only_before=matching.only_before,
        only_after=matching.only_after,
        differences=tuple(differences(before, after)),
    )


def _match(before: Dataset, after: Dataset) -> _Matching:
    earlier, later = results_by_key(before), results_by_key(after)
    return _Matching(
        results=[(earlier[key], later[key]) for key in earlier if key in later],
        only_before=len(earlier.keys() - later.keys()),
        only_after=len(later.keys() - earlier.keys()),
    )


def _have_same_schedule(before: Dataset, after: Dataset) -> bool:
    """Whether both runs have the same seed and the same number of steps."""
    return not any(differences(before, after, SCHEDULE))


def _other_changes(
    before: Dataset,
    after: Dataset,
    results: list[tuple[Result, Result]],
    matched: list[Pair],
) -> list[Change]:
    """Changes of outcome, memory and losses."""
    same_schedule = _have_same_schedule(before, after)
    return [
        *outcome_changes(before, after, results),
        *memory_changes(before, matched),
        *loss_changes(before, after, matched, same_schedule=same_schedule),
    ]


def _pairs(results: list[tuple[Result, Result]], same_host: bool) -> _Pairs:
    """The pairs whose speeds can be compared: known well, and not limited by the host."""
    matched = _ended_ok_twice(results)
    precise = [pair for pair in matched if _is_precise(pair)]
    of_device = [pair for pair in precise if pace_of_pair(pair) not in (Pace.HOST, Pace.CPU)]
    judged = of_device
    if not same_host:
        judged = [pair for pair in of_device if pace_of_pair(pair) is Pace.GPU]
    return _Pairs(matched, precise, of_device, judged)


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
