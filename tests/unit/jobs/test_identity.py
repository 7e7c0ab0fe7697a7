"""The identity of a trial: everything that it trains and measures is part of it."""

from dataclasses import fields, replace

import pytest

from jobs.spec import MeasureSpec, MemoryCap
from tests.benchmarks.grids import make_spec

SPEC = replace(
    make_spec({"micro_batch": 4, "accumulation": 1}), measure=MeasureSpec(relative_error=0.01)
)
OTHER = {"isolation": "fresh", "memory_cap": MemoryCap(device_bytes=2**30), "steps": None}


def another(name: str) -> object:
    """A value of a measured field that differs from its default."""
    value = getattr(MeasureSpec(), name)
    if name in OTHER:
        return OTHER[name]
    return not value if isinstance(value, bool) else value + 0.5


@pytest.mark.parametrize("name", [field.name for field in fields(MeasureSpec)])
def test_trials_that_are_measured_differently_are_different_trials(name):
    changed = replace(SPEC, measure=replace(SPEC.measure, **{name: another(name)}))
    # A trial that ended is the same with more patience.
    assert (changed.trial_id == SPEC.trial_id) == (name == "timeout_seconds")


def test_trials_of_two_seeds_are_two_trials():
    seeds = (0, 1, 42, 2**32 - 1)
    specs = [replace(SPEC, measure=replace(SPEC.measure, seed=seed)) for seed in seeds]
    assert len({spec.trial_id for spec in specs}) == len(seeds)
