"""An anatomy's extra steps, and the published rules of thumb that it is compared with."""

from collections import Counter
from contextlib import nullcontext

import pytest
import torch

from jobs.anatomy.step_profiler import StepProfiler
from jobs.anatomy.trace_reader import read


def train(observer: StepProfiler, micro_batches: int) -> tuple[int, int]:
    """A loop that reports everything; returns the steps and micro-batches that it trained."""
    weight = torch.ones(2, requires_grad=True)
    steps = 0
    trained = 0
    observer.train_begin()
    while True:
        for left in reversed(range(micro_batches)):
            observer.phase("data")
            inputs = {"x": torch.ones(2)}
            observer.micro_batch(inputs)
            if observer.wants(left):
                trained += 1
                observer.phase("forward")
                loss = (weight * inputs["x"]).sum()
                observer.phase("backward")
                loss.backward()
                observer.phase("upkeep")
        steps += 1
        if observer.step_end():
            return steps, trained


def make_observer(timed_steps: int) -> StepProfiler:
    return StepProfiler(
        list, nullcontext(), on_gpu=False, timed_steps=timed_steps, usual_data_wait=0.0
    )


@pytest.mark.parametrize(("timed_steps", "steps"), [(0, 1), (1, 2), (3, 4)])
@pytest.mark.parametrize(
    ("micro_batches", "trained", "repetitions"), [(1, 1, 1.0), (2, 2, 1.0), (5, 2, 2.5)]
)
def test_observer_trains_no_more_than_it_needs(
    timed_steps, steps, micro_batches, trained, repetitions
):
    observer = make_observer(timed_steps)
    assert train(observer, micro_batches) == (steps, steps * trained)
    assert observer.repetitions == repetitions


def test_observer_times_phases_and_caps_the_data_wait():
    observer = make_observer(timed_steps=3)
    train(observer, micro_batches=1)
    assert list(observer.phase_seconds) == ["upkeep", "data", "forward", "backward"]
    assert observer.phase_seconds["data"] == 0.0, "no more than that of a counted step"
    assert observer.phase_seconds["forward"] > 0.0


def test_observer_profiles_every_phase_of_its_last_step():
    observer = make_observer(timed_steps=1)
    train(observer, micro_batches=5)
    names = Counter(phase.name for phase in read(observer.profile, "cpu", frozenset()).phases)
    assert (names["data"], names["forward"], names["backward"]) == (5, 2, 2)
