"""The identity of a trial: everything that it trains and measures is part of it."""

import json
from dataclasses import fields, replace

import pytest

from jobs.spec import (
    DataSpec,
    FollowUp,
    Hook,
    LibrarySettings,
    MeasureSpec,
    MemoryCap,
    ModelSpec,
    Needs,
    Purpose,
    SyntheticData,
    TrainingRecipe,
    TrialSpec,
    UpkeepSpec,
    UserCode,
    from_json,
    to_json,
)
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

ANOTHER = TrialSpec(
    choices={"precision": "bf16", "micro_batch": 4, "accumulation": 1},
    model=ModelSpec(task="causal-lm", architecture="gpt2", config={"n_layer": 2}),
    data=DataSpec(synthetic=SyntheticData(images=2)),
    settings=LibrarySettings(
        training_arguments={"a": 1, "gradient_accumulation_steps": 3}, hooks={"loop": Hook("dpo")}
    ),
    measure=MeasureSpec(upkeep=UpkeepSpec(merge=True)),
    needs=Needs(cpus=2),
    repeat=1,
    training_recipe=TrainingRecipe.of({"precision": "bf16"}),
    follow_up=FollowUp(follows_trial="a", purpose=Purpose.TIE_BREAK, compared_with=("a", "b")),
    gpu_model="NVIDIA H200",
    own_code=UserCode(trainer="mine:Trainer", callbacks=("mine:Callback",)),
    world_size=2,
)
"""No field is at its default."""


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


@pytest.mark.parametrize("name", [field.name for field in fields(TrialSpec)])
def test_trials_that_differ_in_anything_that_is_trained_are_different_trials(name):
    assert getattr(ANOTHER, name) != getattr(SPEC, name)
    changed = replace(SPEC, **{name: getattr(ANOTHER, name)})
    same = {"choices", "needs", "training_recipe"}
    assert (changed.trial_id == SPEC.trial_id) == (name in same)


def test_choices_that_no_setting_holds_make_different_trials():
    offload = {"offload": "optimizer_cpu"}
    choices = [{}, {"micro_batch": 8}, {"accumulation": 0.5}, {"sharding": "zero2"}]
    choices += [{"sharding": "zero3"}, {"sharding": "zero3", **offload}]
    specs = [replace(SPEC, choices={**SPEC.choices, **more}) for more in choices]
    assert len({spec.trial_id for spec in specs}) == len(specs)
    unsharded = replace(SPEC, choices={**SPEC.choices, "sharding": "none", **offload})
    assert unsharded.trial_id == SPEC.trial_id


def test_recorded_trial_is_found_again_by_later_versions():
    """Ids are names of files. A new field with a default renames no trial, at any depth."""
    assert ANOTHER.trial_id == "f3cbc146b508"
    assert (ANOTHER.micro_batch, ANOTHER.accumulation, ANOTHER.effective_batch) == (8, 3, 48)
    assert [*Purpose] == ["search", "cap_check", "tie_break", "gradients", "profile"]
    sharded = replace(ANOTHER, choices={**ANOTHER.choices, "sharding": "zero3"})
    assert sharded.trial_id == "4aab31807df0"
    for defaults in (True, False):
        text = json.dumps(to_json(ANOTHER, defaults=defaults))
        assert from_json(TrialSpec, json.loads(text)) == ANOTHER
    settings = replace(
        ANOTHER.settings, training_arguments={"gradient_accumulation_steps": 3, "a": 1}
    )
    assert replace(ANOTHER, settings=settings).trial_id == ANOTHER.trial_id
