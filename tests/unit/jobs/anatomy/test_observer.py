"""The pass that takes a trial apart: how many steps it trains, and of which micro-batches."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch

from jobs.anatomy.observer import Observer
from jobs.anatomy.trace import read


def train(observer: Observer, micro_batches: int) -> tuple[int, int]:
    """A loop that tells the observer everything; returns the steps and micro-batches that it trained."""
    weight, steps, trained = torch.ones(2, requires_grad=True), 0, 0
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


@pytest.mark.parametrize(("timed_steps", "steps"), [(0, 1), (1, 2), (3, 4)])
@pytest.mark.parametrize(
    ("micro_batches", "trained", "times"), [(1, 1, 1.0), (2, 2, 1.0), (5, 2, 2.5)]
)
def test_the_pass_is_as_short_as_it_can_be(
    timed_steps: int, steps: int, micro_batches: int, trained: int, times: float
) -> None:
    observer = Observer(list, nullcontext(), on_gpu=False, timed_steps=timed_steps, usual_wait=0.0)
    assert train(observer, micro_batches) == (steps, steps * trained)
    assert observer.times == times
    assert set(observer.timed) == {"data", "forward", "backward", "upkeep"}
    assert observer.timed["data"] == 0.0, "no more than a counted step's"
    assert observer.timed["forward"] > 0.0
    assert observer.profile is not None
    names = [name for name, _, _ in read(observer.profile, "cpu", frozenset()).phases]
    assert [names.count(name) for name in ("data", "forward", "backward")] == [
        micro_batches,
        trained,
        trained,
    ]
