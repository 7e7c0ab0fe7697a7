"""The acquisition: which open candidate the frontier search measures next.

A search may be cut at any time. So first comes what raises the Pareto front of memory and speed
most per second of slot time. When nothing raises it by more than the tolerance, what remains is to
rule out the rest: then comes the candidate that is likely on the front and whose measurement prunes
most others per second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from jobs.spec import TrainingRecipe
from orchestrator.analysis.pareto import pareto_front
from orchestrator.search.frontier.arrays import Array, Indices, Mask, Numbering
from orchestrator.search.frontier.candidates import Candidate
from orchestrator.search.frontier.measurements import Measurement
from orchestrator.search.frontier.surrogate import Prediction

Point = tuple[Candidate, Prediction]
SpeedRatios = Callable[[Sequence[Candidate], Sequence[Candidate]], Array]
"""At most how many times as fast each of the first is as each of the second
(``Surrogate.highest_speed_ratios``)."""

_STEPS_OF_AN_EPOCH = 100
"""Assumed for trials that measure a whole epoch, of unknown length. Only the order of the trials
depends on it."""
_BUDGETS = 100
"""Memory budgets, evenly spaced in the logarithm, at which the height of a front is compared."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Choices:
    """What there is to choose from, and what else is known; predictions by candidate."""

    open: Mapping[Candidate, Prediction]
    """Candidates that could be measured."""
    measured: Sequence[Point]
    running: Sequence[Point]
    """Candidates whose trials are out, as predicted."""

    @property
    def points(self) -> list[Point]:
        """All, the open candidates first and the running ones last."""
        return [*self.open.items(), *self.measured, *self.running]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Figures:
    """The figures of all points, shape (points,)."""

    recipes: Indices
    """A number for each training recipe."""
    memory: Array
    least_memory: Array
    speed: Array


def next_candidate(
    choices: Choices, speed_ratios: SpeedRatios, *, tolerance: float, shortest_seconds: float
) -> Candidate | None:
    """The open candidate to measure next; None if what is running will likely prune all of them.

    ``shortest_seconds`` is the slot time of the shortest trial so far: what a trial costs besides
    its steps.
    """
    points = choices.points
    figures = _figures(points)
    prunes = _prunes(points, figures, len(choices.open), speed_ratios, tolerance)
    by_running = prunes[len(points) - len(choices.running) :]
    is_unsettled: Mask = np.asarray(~by_running.any(axis=0))
    if not is_unsettled.any():
        return None
    open_points = choices.open.items()
    seconds = np.array([seconds_of(own, at, shortest_seconds) for own, at in open_points])
    improvements = np.where(is_unsettled, _front_improvements(figures, len(choices.open)), 0.0)
    if improvements.max() > tolerance:
        return _best_to_improve(choices, improvements, seconds, tolerance)
    return _best_to_settle(choices, prunes[: len(choices.open)], is_unsettled, seconds)


def _best_to_improve(
    choices: Choices, improvements: Array, seconds: Array, tolerance: float
) -> Candidate:
    """The candidate that raises its front most per second, of those that raise it noticeably."""
    per_second = np.where(improvements > tolerance, improvements / seconds, 0.0)
    return list(choices.open)[int(np.argmax(per_second))]


def _best_to_settle(
    choices: Choices, prunes: Mask, is_unsettled: Mask, seconds: Array
) -> Candidate:
    """The unsettled candidate that settles most per second; first one on the likely front.

    ``prunes`` says which open candidate prunes which.
    """
    # A measurement settles its own candidate, too.
    settles = prunes | np.eye(len(prunes), dtype=bool)
    settled_per_second = (settles & is_unsettled).sum(axis=1) / seconds
    likely_front = _likely_front([*choices.open.items(), *choices.measured])
    candidates = list(choices.open)

    def rank(index: int) -> tuple[bool, bool, float]:
        on_front = candidates[index] in likely_front
        return bool(is_unsettled[index]), on_front, float(settled_per_second[index])

    return candidates[max(range(len(candidates)), key=rank)]


def _figures(points: Sequence[Point]) -> _Figures:
    numbers: Numbering[TrainingRecipe] = Numbering()
    recipes = [numbers[candidate.training_recipe] for candidate, _ in points]
    return _Figures(
        recipes=np.array(recipes, int),
        memory=np.array([at.memory for _, at in points]),
        least_memory=np.array([at.least_memory for _, at in points]),
        speed=np.array([at.speed for _, at in points]),
    )


def _prunes(
    points: Sequence[Point],
    figures: _Figures,
    open_count: int,
    speed_ratios: SpeedRatios,
    tolerance: float,
) -> Mask:
    """Whether a measurement of each point, if it is as predicted, prunes each open candidate.

    Shape (points, open candidates). The rule is ``Pruning._dominated``.
    """
    candidates = [candidate for candidate, _ in points]
    open_candidates = candidates[:open_count]
    same_recipe = np.equal.outer(figures.recipes, figures.recipes[:open_count])
    memory_limit = (1 + tolerance) * figures.least_memory[:open_count]
    needs_no_more = figures.memory[:, None] <= memory_limit
    is_no_slower = figures.speed[:, None] >= (1 - tolerance) * figures.speed[:open_count]
    # At its best the open candidate is not faster by more than the tolerance.
    ratios = speed_ratios(open_candidates, candidates).T
    is_no_faster = (1 - tolerance) * ratios <= 1
    return np.asarray(same_recipe & needs_no_more & is_no_slower & is_no_faster)


def _front_improvements(figures: _Figures, open_count: int) -> Array:
    """How much each open candidate, as predicted, raises the front of its training recipe.

    Shape (open candidates,).
    """
    improvements = np.zeros(open_count)
    for recipe in np.unique(figures.recipes[:open_count]):
        members = np.flatnonzero(figures.recipes == recipe)
        is_open = members < open_count
        improvements[members[is_open]] = _height_improvements(
            figures.memory[members], figures.speed[members], is_open
        )
    return improvements


def _height_improvements(memory: Array, speed: Array, is_open: Mask) -> Array:
    """How much each open point raises the front of the others, shape (open points,).

    The mean, over memory budgets, of the speed that it adds, as a share of the best predicted
    speed: a hypervolume improvement (Emmerich et al., 2006) at the posterior mean, over the
    logarithm of memory.
    """
    # The geometric spacing can miss its own ends by rounding.
    budgets = np.geomspace(memory.min(), memory.max(), _BUDGETS).clip(memory.min())
    within = np.where(memory[:, None] <= budgets, speed[:, None], 0.0)
    reached = within[~is_open].max(axis=0, initial=0.0)
    added = np.maximum(within[is_open] - reached, 0.0)
    return np.asarray((added / within.max(axis=0)).mean(axis=1))


def _likely_front(points: Iterable[Point]) -> set[Candidate]:
    """The candidates on the Pareto fronts of their training recipes, at their likely figures."""
    by_recipe: dict[TrainingRecipe, list[Point]] = {}
    for candidate, prediction in points:
        by_recipe.setdefault(candidate.training_recipe, []).append((candidate, prediction))
    front: set[Candidate] = set()
    for members in by_recipe.values():
        front.update(candidate for candidate, _ in pareto_front(members, (_little_memory, _speed)))
    return front


def _little_memory(point: Point) -> float:
    return -point[1].memory


def _speed(point: Point) -> float:
    return point[1].speed


def seconds_of(candidate: Candidate, prediction: Prediction, shortest_seconds: float) -> float:
    """Slot time that a trial of the candidate will likely take, in seconds."""
    trial = candidate.trials[0]
    steps = trial.measure.warmup_steps + (trial.measure.steps or _STEPS_OF_AN_EPOCH)
    return shortest_seconds + steps * trial.effective_batch / prediction.speed


def as_prediction(measurement: Measurement) -> Prediction:
    """A measurement as a prediction without doubt."""
    return Prediction(
        memory=measurement.memory_bytes,
        least_memory=measurement.memory_bytes,
        speed=measurement.samples_per_second,
        highest_speed=measurement.samples_per_second,
    )
