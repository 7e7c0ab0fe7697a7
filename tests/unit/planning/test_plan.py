"""Plans: complete, deterministic, without duplicates; what cannot run is a row with its rule."""

import dataclasses
import math
import pickle
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.record import Outcome
from jobs.spec import PLAIN, TrialSpec, from_json, to_json
from jobs.steady_state import MIN_STEPS_TO_GIVE_UP
from jobs.techniques import AXES, Variant
from orchestrator.planning.config import ConfigError, load_config
from orchestrator.planning.plan import Plan, order_by_size, plan
from tests.support import all_techniques
from tests.support.config_files import SHIPPED, config_of

PlanOf = Callable[..., Plan]


@pytest.fixture(scope="module")
def plan_of(tmp_path_factory: pytest.TempPathFactory) -> PlanOf:
    folder = tmp_path_factory.mktemp("plan")

    def plan_of(*, has_gpu: bool = True, **keys: Any) -> Plan:
        return plan(config_of(folder, **keys), has_gpu=has_gpu)

    return plan_of


def _specs(planned: Plan) -> list[TrialSpec]:
    return [*planned.trials, *(record.spec for record in planned.ruled_out)]


def _are_distinct(specs: list[TrialSpec]) -> bool:
    return len({spec.trial_id for spec in specs}) == len(specs)


def _choices_on(planned: Plan, *axes: str) -> list[tuple[Any, ...]]:
    return [tuple(trial.choices[axis] for axis in axes) for trial in planned.trials]


def test_plan_without_axes_is_one_trial_of_defaults(plan_of):
    (trial,) = plan_of().trials
    assert trial.choices == {name: axis.default for name, axis in AXES.items()}
    assert trial.settings.hooks["loop"].name == "trainer_loop"
    assert (trial.effective_batch, trial.training_recipe) == (8, PLAIN)


def test_plan_grid_keeps_the_order_of_the_file(plan_of):
    planned = plan_of(axes={"precision": ["bf16", "fp32"], "micro_batch": [4, 1]})
    assert sorted(_choices_on(planned, "precision", "micro_batch")) == sorted(
        product(["bf16", "fp32"], [4, 1])
    )
    assert list(dict.fromkeys(_choices_on(planned, "micro_batch"))) == [(4,), (1,)]


def test_plan_effective_batch_solves_for_the_accumulation(plan_of):
    planned = plan_of(axes={"micro_batch": [1, 4, 12], "effective_batch": 32})
    assert _choices_on(planned, "micro_batch", "accumulation") == [(1, 32), (4, 8)]
    assert {trial.effective_batch for trial in planned.trials} == {32}
    (record,) = planned.ruled_out
    assert (record.outcome, record.rule) == (Outcome.UNSUPPORTED, "whole_accumulation")
    fractions = plan_of(axes={"micro_batch": 12, "effective_batch": [32, 33]}).ruled_out
    assert len({record.trial_id for record in fractions}) == 2


def test_plan_trial_may_replace_effective_batch_by_accumulation(plan_of):
    planned = plan_of(
        axes={"micro_batch": 4, "effective_batch": 8},
        trials=[{"accumulation": 3}, {"micro_batch": 8}],
    )
    assert _choices_on(planned, "micro_batch", "accumulation") == [(4, 2), (4, 3), (8, 1)]


def test_plan_subsets_overlay_the_axes_and_are_united(plan_of):
    planned = plan_of(
        axes={"precision": ["bf16"], "micro_batch": [1, 2]},
        subsets={
            "small": {"axes": {"optimizer": ["sgd"]}},
            "large": {"axes": {"micro_batch": [2, 4], "optimizer": ["sgd"]}},
        },
    )
    assert _choices_on(planned, "precision", "micro_batch", "optimizer") == [
        ("bf16", batch, "sgd") for batch in (1, 2, 4)
    ]


def test_plan_trials_start_from_the_baseline(plan_of):
    planned = plan_of(
        baseline={"precision": "bf16", "micro_batch": 16}, trials=[{}, {"optimizer": "sgd"}]
    )
    assert _choices_on(planned, "precision", "micro_batch", "optimizer") == [
        ("bf16", 16, "adamw_torch_fused"),
        ("bf16", 16, "sgd"),
    ]


def test_plan_repeats_are_trials_of_their_own(plan_of):
    planned = plan_of(measure={"repeats": 3})
    assert [trial.repeat for trial in planned.trials] == [0, 1, 2]
    assert len({trial.trial_id for trial in planned.trials}) == 3


def test_trial_id_once_computed_changes_nothing_else(plan_of):
    (asked,), (fresh,) = (plan_of().trials for _ in range(2))
    name = asked.trial_id
    assert (to_json(asked), asked) == (to_json(fresh), fresh)
    assert pickle.loads(pickle.dumps(asked)).trial_id == name == fresh.trial_id
    assert replace(asked, repeat=1).trial_id == replace(fresh, repeat=1).trial_id != name


def test_plan_profile_all_gives_trials_other_identities(plan_of):
    trials = {
        profile: plan_of(follow_up={"profile": profile}).trials
        for profile in ("all", "frontier", "none")
    }
    (profiled,), (later,), (never,) = trials.values()
    assert profiled.measure.profile
    # The frontier is known only when the search is over.
    assert later == never
    # A record without its anatomy does not answer for a trial with one.
    assert profiled.trial_id != never.trial_id


def test_plan_training_argument_is_an_axis(plan_of):
    planned = plan_of(axes={"max_grad_norm": [0.0, 1.0]}, trials=[{"weight_decay": 0.1}])
    given = [trial.settings.training_arguments for trial in planned.trials]
    assert [arguments.get("max_grad_norm") for arguments in given] == [0.0, 1.0, 0.0]
    assert [arguments.get("weight_decay") for arguments in given] == [None, None, 0.1]
    assert _choices_on(planned, "weight_decay") == [("default",), ("default",), (0.1,)]


def test_plan_own_arguments_are_not_overridden(plan_of):
    planned = plan_of(training_arguments={"optim": "adagrad"}, axes={"micro_batch": [1, 2]})
    assert {trial.choices["optimizer"] for trial in planned.trials} == {"adagrad"}
    assert {trial.settings.training_arguments["optim"] for trial in planned.trials} == {"adagrad"}
    recipes = [trial.training_recipe.by_axis for trial in planned.trials]
    assert recipes == [{"optimizer": "adagrad"}, {"optimizer": "adagrad"}]


def test_plan_own_deepspeed_file_is_used_and_obeys_the_rules(plan_of):
    own = {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}
    planned = plan_of(deepspeed=own, axes={"optimizer": ["adamw_torch", "sgd"]})
    (trial,) = planned.trials
    assert trial.choices["offload"] == "custom"
    assert trial.settings.deepspeed == own
    assert trial.settings.builds == ("cpu_adam",)
    assert [record.rule for record in planned.ruled_out] == ["offloaded_optimizer_is_cpu_adam"]
    own = {"zero_optimization": {"stage": 3}}
    (record,) = plan_of(deepspeed=own, axes={"base": "bnb_4bit", "adapter": "lora_r8"}).ruled_out
    assert record.rule == "quantized_base_without_zero3"


def test_plan_swept_offload_overlays_the_own_deepspeed_file(plan_of):
    planned = plan_of(deepspeed={"steps_per_print": 7}, axes={"offload": ["none", "zero2"]})
    without, with_zero = (trial.settings.deepspeed for trial in planned.trials)
    assert without is None
    assert (with_zero["steps_per_print"], with_zero["zero_optimization"]["stage"]) == (7, 2)


def test_plan_without_gpu_measures_as_cpu_fallback_says(plan_of):
    (trial,) = plan_of(has_gpu=False, cpu_fallback={"steps": 7}, measure={"steps": "epoch"}).trials
    assert (trial.measure.steps, trial.measure.warmup_steps, trial.needs.gpus) == (7, 2, 0)


def test_plan_without_gpu_runs_enough_steps_to_settle_by_default(plan_of):
    (trial,) = plan_of(has_gpu=False).trials
    assert (trial.measure.steps or 0) > MIN_STEPS_TO_GIVE_UP


def test_order_by_size_puts_small_batches_first(plan_of):
    planned = plan_of(axes={"micro_batch": [16, 1], "accumulation": [1, 4]})
    assert [trial.effective_batch for trial in order_by_size(planned.trials)] == [1, 4, 16, 64]


def test_plan_new_technique_is_one_row(plan_of, monkeypatch):
    row = Variant(
        doc="tomorrow's optimizer",
        training_arguments={"optim": "tomorrow"},
        numerical_effect="training",
    )
    monkeypatch.setitem(AXES["optimizer"].variants, "tomorrow", row)
    (trial,) = plan_of(axes={"optimizer": "tomorrow"}).trials
    assert trial.settings.training_arguments["optim"] == "tomorrow"
    assert trial.training_recipe.by_axis == {"optimizer": "tomorrow"}


_AXES = st.fixed_dictionaries(
    {},
    optional={
        "micro_batch": st.lists(st.integers(1, 16), min_size=1, max_size=3, unique=True),
        "effective_batch": st.lists(
            st.sampled_from([8, 12, 16]), min_size=1, max_size=2, unique=True
        ),
        "weight_decay": st.lists(st.sampled_from([0.0, 0.1]), min_size=1, max_size=2, unique=True),
        **{
            name: st.lists(
                st.sampled_from(sorted(AXES[name].variants)), min_size=1, max_size=3, unique=True
            )
            for name in ("optimizer", "precision", "offload", "loop", "attention")
        },
    },
)


@settings(max_examples=40)
@given(axes=_AXES, exclude=_AXES, other=_AXES)
def test_plan_every_configuration_is_in_exactly_one_place(plan_of, axes, exclude, other):
    subsets = {"one": {"axes": {}}, "two": {"axes": other}} if other else {}
    keys = {"axes": axes, "subsets": subsets, "exclude": [exclude] if exclude else []}
    try:
        planned = plan_of(**keys)
    except ConfigError:
        if not exclude:
            raise
        return  # the exclusion leaves no trial
    specs = _specs(planned)
    assert specs
    assert planned == plan_of(**keys)
    assert _are_distinct(specs)
    assert all(list(spec.choices) == list(specs[0].choices) for spec in specs)
    assert all(from_json(TrialSpec, to_json(spec)) == spec for spec in specs[:2])
    assert len(_specs(plan_of(axes=axes, subsets=subsets))) >= len(specs)
    if exclude and "effective_batch" not in exclude:
        assert not any(
            all(spec.choices.get(axis) in values for axis, values in exclude.items())
            for spec in specs
        )
    if not exclude and not other:
        # No two values of an axis give the same configuration, so the whole grid is there.
        assert len(specs) == math.prod(map(len, axes.values()))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_plan_shipped_config_has_nothing_ruled_out(path):
    config = load_config(path)
    planned = plan(config)
    assert planned.trials
    # The list of all techniques names those for other tasks, too.
    others = (
        ("task:", "virtual_tokens:", "experts", "several_gpus")
        if path.stem == "all_techniques"
        else ()
    )
    assert [record for record in planned.ruled_out if not record.rule.startswith(others)] == []
    assert _are_distinct(_specs(planned))
    assert _are_distinct(_specs(plan(config, has_gpu=False)))


def test_trial_ids_of_every_pair_of_variants_are_distinct(plan_of):
    values: dict[str, list[Any]] = {}
    for name, axis in AXES.items():
        values[name] = [1, 2] if axis.takes_integers else list(axis.variants)
    subsets = {}
    for first, second in combinations(AXES, 2):
        axes = {first: values[first], second: values[second]}
        subsets[f"{first}_{second}"] = {"axes": axes}
    specs = _specs(plan_of(subsets=subsets))
    for name, listed in values.items():
        assert {spec.choices[name] for spec in specs} >= set(listed)
    assert _are_distinct(specs)


def test_all_techniques_gets_a_line_for_a_row_that_no_line_names(monkeypatch):
    text = all_techniques.CONFIG.read_text()
    assert all_techniques.completed(text) == text, "run make schema"
    rows = {**AXES["optimizer"].variants, "new_row": AXES["optimizer"].variants["sgd"]}
    with_row = dataclasses.replace(AXES["optimizer"], variants=rows)
    monkeypatch.setitem(AXES, "optimizer", with_row)
    completed = all_techniques.completed(text)
    added = "  - {optimizer: new_row}\n"
    assert completed.replace(added, "") == text
    assert {"optimizer": "new_row"} in yaml.safe_load(completed)["trials"]
    assert all_techniques.completed(completed) == completed
    # A row that is gone leaves no line behind.
    monkeypatch.undo()
    assert all_techniques.completed(completed) == text
