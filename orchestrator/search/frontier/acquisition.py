"""Which open configuration to measure next: what probably raises the frontier most for its seconds, then what settles
most others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from orchestrator.search.frontier.configurations import Configuration, Measured
from orchestrator.search.frontier.similarity import Numbers
from orchestrator.search.frontier.surrogate import Prediction

Floats = NDArray[np.float64]

_STEPS_OF_AN_EPOCH = 100
"""What is made of a measurement of unknown length; only the order of the trials depends on it."""
_BUDGETS = 100
"""Memory budgets, alike in ratio, at which a frontier's height is looked at."""


def most_telling(
    alive: Mapping[Configuration, Prediction],
    measured: Iterable[tuple[Configuration, Prediction]],
    running: Sequence[tuple[Configuration, Prediction]],
    leads: Callable[[Sequence[Configuration], Sequence[Configuration]], Floats],
    *,
    tolerance: float,
    shortest_seconds: float,
) -> Configuration | None:
    """The open configuration to measure next; None where all are probably settled by what is running.

    Whenever a search is cut, its frontier should be as high as its seconds could make it: so long as something probably
    raises one by more than the tolerance, what does so most a second comes first. Then what settles most others a
    second, and what probably is on the frontier before what is not: what is measured there may rule out the rest.
    ``leads`` tells at most how many times as fast some are as others (``Surfaces.leads``).
    """
    pairs = [*alive.items(), *measured, *running]
    numbers: Numbers[str] = Numbers()
    trainings = np.array([numbers[one.training] for one, _ in pairs], int)
    memory, low, speed = np.array([(at.memory, at.memory_low, at.speed) for _, at in pairs]).T
    alike = trainings[:, None] == trainings[None]
    beats = alike & (memory[:, None] <= memory) & (speed[:, None] > speed)
    everything = [one for one, _ in pairs]
    usual = speed[:, None] >= (1 - tolerance) * speed
    at_best = (1 - tolerance) * leads(everything, everything).T <= 1
    settles = alike & (memory[:, None] <= (1 + tolerance) * low) & usual & at_best
    count = len(alive)
    unsettled = ~settles[len(pairs) - len(running) :, :count].any(axis=0)
    if not unsettled.any():
        return None
    seconds = np.array([seconds_of(one, at, shortest_seconds) for one, at in alive.items()])
    rises = np.where(unsettled, _rises(memory, speed, trainings, count), 0.0)
    if rises.max() > tolerance:
        return list(alive)[int(np.argmax(np.where(rises > tolerance, rises / seconds, 0.0)))]
    itself = np.eye(count, dtype=bool)
    settled = ((settles[:count, :count] | itself) & unsettled).sum(axis=1)
    gains = settled / seconds
    front = ~beats[: len(pairs) - len(running), :count].any(axis=0)
    return list(alive)[
        max(range(count), key=lambda place: (unsettled[place], front[place], gains[place]))
    ]


def _rises(memory: Floats, speed: Floats, trainings: NDArray[np.int64], count: int) -> Floats:
    """How much higher each of the first ``count`` points probably makes its training's frontier than what comes after
    them has made it, shape (count,): the mean, over budgets, of the share of the likely height that it adds."""
    rises = np.zeros(count)
    for training in np.unique(trainings[:count]):
        own = np.flatnonzero(trainings == training)
        budgets = np.geomspace(memory[own].min(), memory[own].max(), _BUDGETS).clip(
            memory[own].min()
        )
        fits = np.where(memory[own, None] <= budgets, speed[own, None], 0.0)
        is_open = own < count
        reached = fits[~is_open].max(axis=0, initial=0.0)
        rises[own[is_open]] = (np.maximum(fits[is_open] - reached, 0.0) / fits.max(axis=0)).mean(
            axis=1
        )
    return rises


def seconds_of(
    configuration: Configuration, predicted: Prediction, shortest_seconds: float
) -> float:
    """What its trial will probably take of a slot."""
    measure, effective = configuration.trials[0].measure, configuration.trials[0].effective_batch
    steps = measure.warmup_steps + (measure.steps or _STEPS_OF_AN_EPOCH)
    return shortest_seconds + steps * effective / predicted.speed


def exactly(found: Measured) -> Prediction:
    """What was measured, as a prediction without a doubt."""
    memory, speed = found.memory_bytes, found.samples_per_second
    return Prediction(memory_low=memory, memory=memory, speed_high=speed, speed=speed)
