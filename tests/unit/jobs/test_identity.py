"""The identity of a trial: everything that it trains and measures is part of it."""

from dataclasses import fields, replace

import pytest

from jobs.spec import MeasureSpec, MemoryCap, UpkeepSpec
from tests.benchmarks.grids import make_spec

SPEC = replace(
    make_spec({"micro_batch": 4, "accumulation": 1}), measure=MeasureSpec(relative_error=0.01)
)
OTHER = {
    "isolation": "fresh",
    "memory_cap": MemoryCap(device_bytes=2**30),
    "steps": None,
    "upkeep": UpkeepSpec(resume=True),
}


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


def test_patience_is_no_part_of_a_trial_that_is_measured_as_by_default():
    own = [replace(SPEC, measure=MeasureSpec(timeout_seconds=seconds)) for seconds in (300.0, 9.0)]
    assert own[0].trial_id == own[1].trial_id


def test_trials_of_two_seeds_are_two_trials():
    seeds = (0, 1, 42, 2**32 - 1)
    specs = [replace(SPEC, measure=replace(SPEC.measure, seed=seed)) for seed in seeds]
    assert len({spec.trial_id for spec in specs}) == len(seeds)
