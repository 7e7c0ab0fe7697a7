"""Which open configuration to measure next: the one that probably settles most others for its seconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from orchestrator.search.configurations import Configuration, Measured
from orchestrator.search.prediction import Prediction

_STEPS_OF_AN_EPOCH = 100
"""What is made of a measurement of unknown length; only the order of the trials depends on it."""


def most_telling(
    alive: Mapping[Configuration, Prediction],
    measured: Iterable[tuple[Configuration, Prediction]],
    running: Sequence[tuple[Configuration, Prediction]],
    *,
    tolerance: float,
    shortest_seconds: float,
) -> Configuration | None:
    """The open configuration to measure next; None where all are probably settled by what is running. What probably is
    on the frontier comes before what probably is not: what is measured there may rule out the rest."""
    pairs = [*alive.items(), *measured, *running]
    trainings = _numbers([one.training for one, _ in pairs])
    memory, low, speed, high = np.array([(at.memory, at.memory_low, at.speed, at.speed_high) for _, at in pairs]).T
    alike = trainings[:, None] == trainings[None]
    beats = alike & (memory[:, None] <= memory) & (speed[:, None] > speed)
    settles = alike & (memory[:, None] <= (1 + tolerance) * low) & (speed[:, None] >= (1 - tolerance) * high)
    count = len(alive)
    unsettled = ~settles[len(pairs) - len(running) :, :count].any(axis=0)
    if not unsettled.any():
        return None
    itself = np.eye(count, dtype=bool)
    settled = ((settles[:count, :count] | itself) & unsettled).sum(axis=1)
    gains = settled / np.array([seconds_of(one, at, shortest_seconds) for one, at in alive.items()])
    front = ~beats[: len(pairs) - len(running), :count].any(axis=0)
    return list(alive)[max(range(count), key=lambda place: (unsettled[place], front[place], gains[place]))]


def seconds_of(configuration: Configuration, predicted: Prediction, shortest_seconds: float) -> float:
    """What its trial will probably take of a slot."""
    measure, effective = configuration.trials[0].measure, configuration.trials[0].effective_batch
    steps = measure.warmup_steps + (measure.steps or _STEPS_OF_AN_EPOCH)
    return shortest_seconds + steps * effective / predicted.speed


def exactly(found: Measured) -> Prediction:
    """What was measured, as a prediction without a doubt."""
    memory, speed = found.memory_bytes, found.samples_per_second
    return Prediction(memory_low=memory, memory=memory, speed_high=speed, speed=speed)


def _numbers(names: Sequence[str]) -> NDArray[np.int64]:
    places = {name: place for place, name in enumerate(dict.fromkeys(names))}
    return np.array([places[name] for name in names], int)
