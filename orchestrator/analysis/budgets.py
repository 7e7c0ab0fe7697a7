"""Which configuration to take: the fastest in each budget, of the baseline's kind of training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from jobs.spec import Choice
from jobs.techniques import AXES
from orchestrator.analysis.cap_checks import Check, evidence
from orchestrator.analysis.frame.points import Points
from orchestrator.analysis.pareto import AND, Point
from orchestrator.analysis.tie_breaks import Pairing, against_the_first, fastest_in_turns

GIB = 2**30
CLOSE = 0.01
"""Speeds nearer than this are close, whatever their intervals say."""
MOST_CLOSE = 3
CARDS = tuple(size * GIB for size in (4, 8, 12, 16, 24, 32, 40, 48, 80, 96, 141, 180))
"""Memory of the accelerators people own, bytes: the budgets of a run that names none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """The fastest configuration within a budget of memory, if any fits."""

    budget_bytes: int
    best: Point | None
    """Of the training asked for."""
    other: Point | None = None
    """Of any other training, where that is faster still."""
    failed: tuple[Point, ...] = ()
    """Those whose peaks would fit, but which were seen to fail under a cap; the fastest first."""
    checks: tuple[Check, ...] = ()
    """What was run again under caps."""
    close: tuple[Point, ...] = ()
    """The fastest as the search measured it, and of its training those whose speed it could not tell from that."""
    pairings: tuple[Pairing, ...] = ()
    """What came of those when they were measured in turns, each to the first."""

    def seen(self, point: Point) -> Check | None:
        """What was seen of a point in this budget; None where it is inferred from its peak."""
        return evidence(self.checks, point.trial_ids, self.budget_bytes)


def fastest(points: Sequence[Point], budget_bytes: float = float("inf")) -> Point | None:
    """The fastest point that fits, the leaner of equals; None when nothing fits."""
    own = Points.of(points)
    fitting = np.flatnonzero(own.memory_bytes <= budget_bytes)
    if not len(fitting):
        return None
    speed = own.samples_per_second[fitting]
    equals = fitting[speed == speed.max()]
    return own[int(equals[own.memory_bytes[equals].argmin()])]


def best_in_budgets(
    points: Sequence[Point],
    budgets: Sequence[int] = (),
    training: str = "",
    checks: Sequence[Check] = (),
    pairings: Sequence[Pairing] = (),
) -> tuple[Verdict, ...]:
    """A verdict for each budget in bytes, smallest first, within a kind of training, beside what others would buy.

    What was seen to fail under a budget's cap is not its pick, whatever it took without; and of those that the search
    could not tell apart it is the one that was faster in turns.
    """
    own = Points.of(points)
    chosen = sorted(set(budgets)) or customary_budgets(own)
    return tuple(_verdict(own, budget, training, checks, pairings) for budget in chosen)


def _verdict(
    points: Points, budget: int, training: str, checks: Sequence[Check], pairings: Sequence[Pairing]
) -> Verdict:
    fitting = points.where(points.memory_bytes <= budget)
    failing = (
        [bool((c := evidence(checks, p.trial_ids, budget)) and c.fails) for p in fitting]
        if checks
        else []
    )
    fails = np.array(failing, bool) if failing else np.zeros(len(fitting), bool)
    failed, left = fitting.where(fails), fitting.where(~fails)
    close, of_all = contenders(left.where(left.trainings.equal(training))), fastest(left)
    in_turns = against_the_first(close, pairings)
    best = fastest_in_turns(close, in_turns)
    # What stands beside it was not in the turns: its speed is the search's.
    beaten = of_all and of_all.training != training and of_all.samples_per_second > _speed(close)
    return Verdict(
        budget_bytes=budget,
        best=best,
        other=of_all if beaten else None,
        failed=tuple(sorted(failed, key=lambda point: -point.samples_per_second)),
        checks=tuple(checks),
        close=close,
        pairings=in_turns,
    )


def contenders(points: Sequence[Point]) -> tuple[Point, ...]:
    """The fastest, and after it those whose speed cannot be told from its, ``MOST_CLOSE`` in all."""
    own = Points.of(points)
    if (best := fastest(own)) is None:
        return ()
    error, own_error = (
        np.nan_to_num(e, posinf=0.0) for e in (own.errors, best.samples_per_second_error or 0.0)
    )
    least = best.samples_per_second * (1 - np.maximum(CLOSE, np.hypot(error, own_error)))
    near = np.flatnonzero(own.samples_per_second >= least)
    near = near[np.lexsort((own.memory_bytes[near], -own.samples_per_second[near]))][:MOST_CLOSE]
    return (best, *[point for point in own.where(near) if point is not best][: MOST_CLOSE - 1])


def _speed(close: Sequence[Point]) -> float:
    return close[0].samples_per_second if close else 0.0


def customary_budgets(points: Sequence[Point]) -> list[int]:
    """The card sizes that tell these points apart; powers of two where all are smaller than any card."""
    if not points:
        return []
    own = Points.of(points)
    least, most = own.memory_bytes.min(), own.memory_bytes.max()
    sizes = CARDS if most > CARDS[0] else tuple(2**power for power in range(20, 33))
    enough = next((size for size in sizes if size >= most), sizes[-1])
    return [size for size in sizes if least <= size <= enough]


def baseline_choices(points: Sequence[Point], asked: Mapping[str, Choice]) -> dict[str, Choice]:
    """Axis -> the value techniques are compared with: as asked, else the technique's default, else the first met.

    An asked ``effective_batch`` is turned into the accumulation that it means.
    """
    wanted = _wanted(asked)
    chosen: dict[str, Choice] = {}
    for axis, column in Points.of(points).choices.items():
        values = column.met()
        own = [value for value in values if axis in wanted and str(value) == str(wanted[axis])]
        default = [value for value in values if axis in AXES and value == AXES[axis].default]
        chosen[axis] = (own or default or values)[0]
    return chosen


def _wanted(asked: Mapping[str, Choice]) -> dict[str, Choice]:
    wanted = {axis: AXES[axis].default for axis in AXES} | dict(asked)
    effective, micro = wanted.pop("effective_batch", None), wanted["micro_batch"]
    if isinstance(effective, int) and isinstance(micro, int):
        wanted["accumulation"] = effective // micro
    return wanted


def baseline_training(
    candidates: Iterable[tuple[Mapping[str, Choice], str]], asked: Mapping[str, Choice]
) -> str:
    """The kind of training of the (choices, kind) nearest to the baseline; the plainer kind of equally near ones.

    Near is what agrees with it in the axes that set any of the kinds apart.
    """
    kinds = list(candidates)
    apart = {
        part.partition("=")[0] for kind in {kind for _, kind in kinds} for part in kind.split(AND)
    }
    wanted = {axis: str(value) for axis, value in _wanted(asked).items() if axis in apart}

    def distance(candidate: tuple[Mapping[str, Choice], str]) -> tuple[int, int]:
        choices, kind = candidate
        return sum(
            axis in choices and str(choices[axis]) != value for axis, value in wanted.items()
        ), len(kind)

    return min(kinds, key=distance, default=({}, ""))[1]
