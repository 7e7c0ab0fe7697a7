"""The comparison of two runs: configurations are matched, then judged one kind of change at a time.

Host-bound rows are not judged by speed: their speed is the host's. Rows without a GPU are not,
either: whatever else runs on the machine decides theirs. Launch-bound rows are judged only between
equal hosts.
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
"""A row whose mean step is known no better than this is not judged by its speed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Matching:
    """The configurations of both runs, and how many only one of them has."""

    results: list[tuple[Result, Result]]
    only_before: int
    only_after: int


@dataclass(frozen=True, slots=True)
class _Pairs:
    """The pairs that ended ok in both runs, and those left after each reason not to judge one."""

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
        """Pairs whose pace the host sets."""
        return len(self.precise) - len(self.of_device) - self.without_gpu

    @property
    def without_gpu(self) -> int:
        """Pairs that were measured on the processor."""
        return sum(pace_of_pair(pair) is Pace.CPU for pair in self.precise)

    @property
    def other_hosts(self) -> int:
        """Pairs whose pace depends on hosts that differ."""
        return len(self.of_device) - len(self.judged)


def compare(before: Dataset, after: Dataset, *, different_hosts: bool = False) -> Comparison:
    """Match two runs by configuration.

    Whether their hardware may be compared is for the caller to judge.

    ``different_hosts``: judge the speeds of rows that are not GPU-bound even if the hosts differ.
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
    """Whether seed and length of training are equal, which decide the losses."""
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
    """Which speeds can be judged: those that are known well, and whose pace no host sets."""
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
    # An error of exactly 0 is a known one: equal steps on a coarse clock.
    return all(error is not None and error < MAX_ERROR for error in errors)


def _order(change: Change) -> tuple[int, float]:
    """Sort key: the worst kind first, within a kind the largest change first."""
    kinds = (*WORSE, *BETTER)
    # The logarithm makes a halving as large a change as a doubling.
    return kinds.index(change.kind), -abs(math.log(change.ratio or 1))
