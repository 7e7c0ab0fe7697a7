"""The acquisition: what raises the front most per second, then what prunes most."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from orchestrator.search.frontier.acquisition import Choices, next_candidate
from orchestrator.search.frontier.surrogate import Prediction
from orchestrator.search.model.arrays import Array
from orchestrator.search.model.candidates import Candidate, candidates_of
from tests.benchmarks.grids import make_spec

SMALL, MIDDLE, LARGE, SLOW = candidates_of(
    make_spec({"micro_batch": size}) for size in (1, 8, 64, 128)
)
"""The slow one takes most memory for nothing, so that all others leave budgets above them."""


def at(memory: float, speed: float) -> Prediction:
    """A prediction without doubt."""
    return Prediction(memory=memory, least_memory=memory, speed=speed, highest_speed=speed)


def chosen(choices: Choices) -> Candidate | None:
    """What is measured next, where speeds are known exactly."""
    speeds = {candidate: prediction.speed for candidate, prediction in choices.points}

    def ratios(candidates: Sequence[Candidate], others: Sequence[Candidate]) -> Array:
        own = np.array([speeds[candidate] for candidate in candidates])
        return own[:, None] / np.array([speeds[other] for other in others])

    return next_candidate(choices, ratios, tolerance=0.02, shortest_seconds=1.0)


def test_acquisition_takes_what_raises_the_front_most() -> None:
    measured = [(SMALL, at(1.0, 10.0)), (SLOW, at(10.0, 5.0))]
    choices = {MIDDLE: at(2.0, 12.0), LARGE: at(3.0, 100.0)}
    assert chosen(Choices(open=choices, measured=measured, running=[])) is LARGE


def test_acquisition_counts_what_is_running_as_reached() -> None:
    measured = [(SLOW, at(10.0, 5.0))]
    choices = {MIDDLE: at(2.0, 90.0), SMALL: at(1.0, 10.0)}
    assert chosen(Choices(open=choices, measured=measured, running=[])) is MIDDLE
    running = [(LARGE, at(1.9, 95.0))]
    assert chosen(Choices(open=choices, measured=measured, running=running)) is SMALL


def test_acquisition_waits_if_what_is_running_settles_the_rest() -> None:
    running = [(LARGE, at(1.0, 100.0))]
    choices = {SMALL: at(1.0, 50.0), MIDDLE: at(2.0, 60.0)}
    assert chosen(Choices(open=choices, measured=[], running=running)) is None


def test_acquisition_without_rises_takes_what_prunes_most() -> None:
    # Neither raises the front of what is measured; the middle one rules out the large one, too.
    measured = [(SMALL, at(2.0, 100.0))]
    choices = {LARGE: at(2.0, 99.5), MIDDLE: at(2.0, 100.0)}
    assert chosen(Choices(open=choices, measured=measured, running=[])) is MIDDLE
