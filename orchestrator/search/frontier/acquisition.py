"""The acquisition: which open candidate the frontier search measures next.

A search may be stopped at any time. So the first candidates are those that raise the Pareto front
of memory and speed most per second of slot time. When no candidate raises it by more than the
tolerance, the search rules out the rest: next are candidates that are likely on the front, and of
these the one that prunes most others per second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from jobs.spec import TrainingRecipe
from orchestrator.analysis.pareto import pareto_front
from orchestrator.search.frontier.surrogate import Prediction
from orchestrator.search.model.arrays import Array, Indices, Mask, Numbering
from orchestrator.search.model.candidates import Candidate
from orchestrator.search.model.measurements import Measurement

Point = tuple[Candidate, Prediction]
SpeedRatios = Callable[[Sequence[Candidate], Sequence[Candidate]], Array]
"""Upper bounds of speed ratios: each of the first candidates to each of the second ones.

See ``Surrogate.highest_speed_ratios``."""

_BUDGETS = 100
"""Memory budgets, evenly spaced in the logarithm, at which the height of a front is compared."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Choices:
    """What there is to choose from, and what else is known; predictions by candidate."""

    open: Mapping[Candidate, Prediction]
    """Candidates that could be measured."""
    measured: Sequence[Point]
    running: Sequence[Point]
    """Candidates with an outstanding trial, as predicted."""

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
    open_count = len(choices.open)
    prunes = _prunes(points, figures, open_count, speed_ratios, tolerance)
    # What a running trial will likely prune is settled: it needs no trial of its own.
    by_running = prunes[len(points) - len(choices.running) :]
    is_unsettled: Mask = np.asarray(~by_running.any(axis=0))
    if not is_unsettled.any():
        return None
    seconds = _slot_seconds(choices, shortest_seconds)
    improvements = np.where(is_unsettled, _front_improvements(figures, open_count), 0.0)
    # Raise the front first. When no candidate raises it noticeably, rule out the rest.
    if improvements.max() > tolerance:
        return _best_to_improve(choices, improvements, seconds, tolerance)
    return _best_to_settle(choices, prunes[:open_count], is_unsettled, seconds)


def _slot_seconds(choices: Choices, shortest_seconds: float) -> Array:
    """Slot time to expect of each open candidate, shape (open candidates,)."""
    seconds = []
    for candidate, prediction in choices.open.items():
        seconds.append(seconds_of(candidate, prediction, shortest_seconds))
    return np.array(seconds)


def _best_to_improve(
    choices: Choices, improvements: Array, seconds: Array, tolerance: float
) -> Candidate:
    """Of the candidates that raise their front noticeably, the one that does so most per second.

    ``improvements`` are shares of the best speed; ``seconds`` are slot time.
    """
    per_second = np.where(improvements > tolerance, improvements / seconds, 0.0)
    return list(choices.open)[int(np.argmax(per_second))]


def _best_to_settle(
    choices: Choices, prunes: Mask, is_unsettled: Mask, seconds: Array
) -> Candidate:
    """The unsettled candidate that settles most others per second; those on the likely front first.

    ``prunes`` says which open candidate prunes which.
    """
    # A measurement settles its own candidate, too: hence the identity matrix.
    settles = prunes | np.eye(len(prunes), dtype=bool)
    # Only unsettled candidates count.
    settled_per_second = (settles & is_unsettled).sum(axis=1) / seconds
    likely_front = _likely_front([*choices.open.items(), *choices.measured])
    candidates = list(choices.open)

    def rank(index: int) -> tuple[bool, bool, float]:
        """Unsettled candidates first, of these the ones on the likely front, then by pace."""
        on_front = candidates[index] in likely_front
        return bool(is_unsettled[index]), on_front, float(settled_per_second[index])

    return candidates[max(range(len(candidates)), key=rank)]


def _figures(points: Sequence[Point]) -> _Figures:
    # One pass over the points: a number for the recipe, three figures of the prediction.
    numbers: Numbering[TrainingRecipe] = Numbering()
    recipes = []
    figures = []
    for candidate, prediction in points:
        recipes.append(numbers[candidate.training_recipe])
        figures.append((prediction.memory, prediction.least_memory, prediction.speed))
    memory, least_memory, speed = np.array(figures).reshape(len(points), 3).T
    return _Figures(
        recipes=np.array(recipes, int), memory=memory, least_memory=least_memory, speed=speed
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
    # Trainings of different recipes are never compared.
    same_recipe = np.equal.outer(figures.recipes, figures.recipes[:open_count])
    # Differences within the tolerance count as none: in memory, then in speed.
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
    # Each training recipe has a front of its own.
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
    # Speed of each point at each budget; 0 if the point does not fit.
    within = np.where(memory[:, None] <= budgets, speed[:, None], 0.0)
    # The height of the front without the open points, and what each of them would add.
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
        for candidate, _ in pareto_front(members, (_little_memory, _speed)):
            front.add(candidate)
    return front


def _little_memory(point: Point) -> float:
    return -point[1].memory


def _speed(point: Point) -> float:
    return point[1].speed


def seconds_of(candidate: Candidate, prediction: Prediction, shortest_seconds: float) -> float:
    """Slot time that a trial of the candidate will likely take, in seconds."""
    # A fixed cost for each trial, and its steps at the predicted samples per second.
    samples = candidate.steps * candidate.trials[0].effective_batch
    return shortest_seconds + samples / prediction.speed


def as_prediction(measurement: Measurement) -> Prediction:
    """A measurement as a prediction whose bounds are equal to its figures."""
    return Prediction(
        memory=measurement.memory_bytes,
        least_memory=measurement.memory_bytes,
        speed=measurement.samples_per_second,
        highest_speed=measurement.samples_per_second,
    )
