"""The order in which an epoch and a trial have rows of unequal length."""

from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
import torch

from jobs.trial.data import RowLengths
from orchestrator.prediction.tracing.rows import epoch_orders
from orchestrator.prediction.tracing.rows.batches import Shape
from tests.conftest import build_tiny_spec

LENGTHS = RowLengths(by_column={"input_ids": np.arange(1, 1001), "labels": np.arange(1, 1001)})


def _spec(**arguments):
    spec = build_tiny_spec({"micro_batch": 4, "accumulation": 2})
    settings = replace(
        spec.settings, training_arguments={**spec.settings.training_arguments, **arguments}
    )
    return replace(spec, settings=settings)


def test_epoch_has_the_rows_that_accelerate_draws():
    steps = epoch_orders.epoch(_spec(), LENGTHS, None, seed=7)
    rows = torch.randperm(1000, generator=torch.Generator().manual_seed(7))[:8].reshape(2, 4) + 1
    assert steps[0] == [Shape(4, True, (own,)) for own in rows.max(dim=1).values.tolist()]
    assert max(own.lengths for own in chain(*steps)) == (1000,)
    assert len(steps) < 70  # of 125


def test_epoch_is_cut_where_only_a_longer_batch_adds_memory():
    steps = epoch_orders.epoch(_spec(), LENGTHS, None, seed=7)
    longest = [max(own.lengths for own in step) for step in steps[50:]]
    assert len(longest) < 10
    assert longest == sorted(longest)


@pytest.mark.parametrize("sampling", ["random", "group_by_length"])
@pytest.mark.parametrize("seed", range(4))
def test_epoch_keeps_the_longest_steps_after_the_first_padded_or_not(monkeypatch, sampling, seed):
    spec = _spec(train_sampling_strategy=sampling)
    kept = epoch_orders.epoch(spec, LENGTHS, None, seed)
    monkeypatch.setattr(epoch_orders, "_plateau", lambda steps: steps)
    every = epoch_orders.epoch(spec, LENGTHS, None, seed)
    # The first step has no optimizer states, and grouped rows begin with the longest.
    assert kept[0] == every[0]
    for is_padded in (True, False):
        of_kept, of_every = (
            [own.lengths for own in chain(*steps[1:]) if own.is_padded is is_padded]
            for steps in (kept, every)
        )
        assert max(of_kept, default=None) == max(of_every, default=None)


def test_grouped_rows_are_of_similar_length():
    [spread_alone, spread_grouped] = [
        np.ptp([own.lengths[0] for own in step])
        for spec in (_spec(), _spec(train_sampling_strategy="group_by_length"))
        for step in epoch_orders.epoch(spec, LENGTHS, None, seed=7)[:1]
    ]
    assert spread_grouped < spread_alone


def test_trial_ends_with_the_longest_rows_and_pads_as_the_collator_does():
    class Collator:
        pad_to_multiple_of = 64

    steps = epoch_orders.trial(_spec(), LENGTHS, Collator())
    assert steps[-1] == [Shape(4, True, (1024,))] * 2
    assert all(own.lengths[0] % 64 == 0 for own in chain(*steps))
    assert len(steps) < 30


@pytest.mark.parametrize("rows", [1, 7])
def test_fewer_rows_than_a_step_have_no_epoch(rows):
    few = RowLengths(by_column={"input_ids": np.arange(1, rows + 1)})
    assert epoch_orders.epoch(_spec(), few, None, seed=7) == []
