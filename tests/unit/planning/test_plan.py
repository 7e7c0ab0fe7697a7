"""Plans: complete, deterministic, without duplicates, and impossible points as rows with their rule."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.record import Outcome
from jobs.spec import spec_from_json, to_json
from jobs.techniques import AXES, Variant
from orchestrator.planning.config import load_config
from orchestrator.planning.plan import Plan, order_by_size, plan
from orchestrator.planning.validity import RULES
from orchestrator.reporting.plan import describe

ROOT = Path(__file__).parents[3]
SHIPPED = sorted((ROOT / "configs").glob("*.yaml"))
PlanOf = Callable[..., Plan]


@pytest.fixture(scope="module")
def plan_of(tmp_path_factory: pytest.TempPathFactory) -> PlanOf:
    """The plan of a configuration given as keywords."""
    path = tmp_path_factory.mktemp("plan") / "sweep.yaml"

    def plan_of(*, has_gpu: bool = True, **keys: Any) -> Plan:
        path.write_text(
            yaml.safe_dump(
                {"model": {"task": "causal-lm", "architecture": "llama"}, **keys}, sort_keys=False
            )
        )
        return plan(load_config(path), has_gpu=has_gpu)

    return plan_of


def _points(planned: Plan, *axes: str) -> list[tuple[Any, ...]]:
    return [tuple(trial.choices[axis] for axis in axes) for trial in planned.trials]


def test_a_sweep_without_axes_is_one_trial_of_defaults(plan_of: PlanOf) -> None:
    (trial,) = plan_of().trials
    assert trial.choices == {name: axis.default for name, axis in AXES.items()}
    assert trial.recipe.hooks["loop"][0] == "jobs.loops.trainer:train"
    assert trial.equivalence == "effective_batch=8"


def test_a_grid_goes_in_the_order_of_the_file(plan_of: PlanOf) -> None:
    planned = plan_of(axes={"precision": ["bf16", "fp32"], "micro_batch": [4, 1]})
    assert sorted(_points(planned, "precision", "micro_batch")) == sorted(
        product(["bf16", "fp32"], [4, 1])
    )
    assert list(dict.fromkeys(_points(planned, "micro_batch"))) == [(4,), (1,)]


def test_effective_batch_is_held(plan_of: PlanOf) -> None:
    planned = plan_of(axes={"micro_batch": [1, 4, 12], "effective_batch": 32})
    assert _points(planned, "micro_batch", "accumulation") == [(1, 32), (4, 8)]
    assert {trial.effective_batch for trial in planned.trials} == {32}
    (record,) = planned.ruled_out
    assert (record.outcome, record.rule) == (Outcome.UNSUPPORTED, "whole_accumulation")


def test_unlike_indivisible_batches_are_unlike_rows(plan_of: PlanOf) -> None:
    planned = plan_of(axes={"micro_batch": 12, "effective_batch": [32, 33]})
    assert len({record.trial_id for record in planned.ruled_out}) == 2


def test_a_trial_may_set_accumulation_under_an_effective_batch(plan_of: PlanOf) -> None:
    planned = plan_of(
        axes={"micro_batch": 4, "effective_batch": 8},
        trials=[{"accumulation": 3}, {"micro_batch": 8}],
    )
    assert _points(planned, "micro_batch", "accumulation") == [(4, 2), (4, 3), (8, 1)]


def test_subsets_are_laid_over_the_axes_and_united(plan_of: PlanOf) -> None:
    planned = plan_of(
        axes={"precision": ["bf16"], "micro_batch": [1, 2]},
        subsets={
            "small": {"axes": {"optimizer": ["sgd"]}},
            "large": {"axes": {"micro_batch": [2, 4], "optimizer": ["sgd"]}},
        },
    )
    assert _points(planned, "precision", "micro_batch", "optimizer") == [
        ("bf16", batch, "sgd") for batch in (1, 2, 4)
    ]


def test_trials_start_from_the_baseline(plan_of: PlanOf) -> None:
    planned = plan_of(
        baseline={"precision": "bf16", "micro_batch": 16}, trials=[{}, {"optimizer": "sgd"}]
    )
    assert _points(planned, "precision", "micro_batch", "optimizer") == [
        ("bf16", 16, "adamw_torch_fused"),
        ("bf16", 16, "sgd"),
    ]


def test_repeats_are_trials_of_their_own(plan_of: PlanOf) -> None:
    planned = plan_of(measure={"repeats": 3})
    assert [trial.repeat for trial in planned.trials] == [0, 1, 2]
    assert len({trial.trial_id for trial in planned.trials}) == 3


def test_a_trial_that_was_asked_its_name_is_the_same_trial(plan_of: PlanOf) -> None:
    (asked,), (fresh,) = (plan_of().trials for _ in range(2))
    name = asked.trial_id
    assert (to_json(asked), asked) == (to_json(fresh), fresh)
    assert pickle.loads(pickle.dumps(asked)).trial_id == name == fresh.trial_id
    assert replace(asked, repeat=1).trial_id == replace(fresh, repeat=1).trial_id != name


def test_all_trials_none_or_later_those_on_the_frontier_are_taken_apart(plan_of: PlanOf) -> None:
    def ids(anatomy: str) -> list[str]:
        return [trial.trial_id for trial in plan_of(measure={"anatomy": anatomy}).trials]

    assert all(trial.measure.anatomy for trial in plan_of(measure={"anatomy": "all"}).trials)
    assert ids("frontier") == ids("none"), "the frontier is known when the search is over"
    assert not {*ids("all")} & {*ids("none")}, (
        "a record without its anatomy does not answer for one with it"
    )


def test_an_argument_is_an_axis(plan_of: PlanOf) -> None:
    planned = plan_of(axes={"max_grad_norm": [0.0, 1.0]}, trials=[{"weight_decay": 0.1}])
    seen = [
        (arguments.get("max_grad_norm"), arguments.get("weight_decay"))
        for arguments in (trial.recipe.training_arguments for trial in planned.trials)
    ]
    assert seen == [(0.0, None), (1.0, None), (0.0, 0.1)]
    assert _points(planned, "weight_decay") == [("default",), ("default",), (0.1,)]


def test_own_arguments_are_not_overridden(plan_of: PlanOf) -> None:
    planned = plan_of(training_arguments={"optim": "adagrad"}, axes={"micro_batch": [1, 2]})
    assert {trial.choices["optimizer"] for trial in planned.trials} == {"custom"}
    assert {trial.recipe.training_arguments["optim"] for trial in planned.trials} == {"adagrad"}
    assert {trial.equivalence for trial in planned.trials} == {
        "effective_batch=1 · optimizer=custom",
        "effective_batch=2 · optimizer=custom",
    }


def test_an_own_deepspeed_file_is_used_and_obeys_the_rules(plan_of: PlanOf) -> None:
    own = {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}
    planned = plan_of(deepspeed=own, axes={"optimizer": ["adamw_torch", "sgd"]})
    (trial,) = planned.trials
    assert trial.choices["offload"] == "custom"
    assert trial.recipe.deepspeed == own
    assert trial.recipe.prepares == ("cpu_adam",)
    assert [record.rule for record in planned.ruled_out] == ["offloaded_optimizer_is_cpu_adam"]


def test_a_swept_offload_lies_over_the_own_file(plan_of: PlanOf) -> None:
    planned = plan_of(deepspeed={"steps_per_print": 7}, axes={"offload": ["none", "zero2"]})
    without, with_zero = (trial.recipe.deepspeed for trial in planned.trials)
    assert without is None
    assert with_zero is not None
    assert (with_zero["steps_per_print"], with_zero["zero_optimization"]["stage"]) == (7, 2)


@pytest.mark.parametrize(
    ("point", "rule"),
    [
        (
            {"optimizer": "adafactor", "offload": "zero2_cpu_optimizer"},
            "offloaded_optimizer_is_cpu_adam",
        ),
        ({"optimizer": "galore_adamw", "offload": "zero2"}, "low_rank_needs_matrices"),
        (
            {"optimizer": "apollo_adamw_layerwise", "accumulation": 2},
            "layerwise_without_accumulation",
        ),
        ({"optimizer": "lomo", "accumulation": 2}, "lomo_without_accumulation"),
        ({"optimizer": "lomo", "offload": "zero0"}, "lomo_without_deepspeed"),
        ({"optimizer": "adalomo", "precision": "fp16"}, "lomo_without_loss_scaling"),
        ({"optimizer": "lomo", "loop": "accelerate"}, "lomo_needs_trainer"),
        ({"optimizer": "schedule_free_sgd", "loop": "accelerate"}, "schedule_free_needs_trainer"),
        ({"offload": "zero2", "loop": "accelerate"}, "plain_loop_without_deepspeed"),
        ({"compile": "inductor", "loop": "accelerate"}, "plain_loop_is_eager"),
        ({"attention": "flash_attention_2", "precision": "tf32"}, "flash_attention_in_16_bits"),
        ({"micro_batch": 3, "effective_batch": 8}, "whole_accumulation"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_rule_answers(plan_of: PlanOf, point: dict[str, Any], rule: str) -> None:
    planned = plan_of(trials=[point])
    assert not planned.trials
    assert [record.rule for record in planned.ruled_out] == [rule]


def test_every_rule_has_a_name_of_its_own_and_a_sentence() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
    assert all(rule.reason[0].isupper() and rule.reason.endswith(".") for rule in RULES)


def test_without_a_gpu_the_cpu_section_measures(plan_of: PlanOf) -> None:
    (trial,) = plan_of(has_gpu=False, cpu={"steps": 7}, measure={"steps": "epoch"}).trials
    assert (trial.measure.steps, trial.measure.warmup_steps, trial.needs.gpus) == (7, 2, 0)


def test_by_size_the_small_come_first(plan_of: PlanOf) -> None:
    planned = plan_of(axes={"micro_batch": [16, 1], "accumulation": [1, 4]})
    assert [trial.effective_batch for trial in order_by_size(planned.trials)] == [1, 4, 16, 64]


def test_a_new_technique_is_one_row(plan_of: PlanOf, monkeypatch: pytest.MonkeyPatch) -> None:
    row = Variant(
        doc="tomorrow's optimizer", training_arguments={"optim": "tomorrow"}, effect="training"
    )
    monkeypatch.setitem(AXES["optimizer"].variants, "tomorrow", row)
    (trial,) = plan_of(axes={"optimizer": "tomorrow"}).trials
    assert trial.recipe.training_arguments["optim"] == "tomorrow"
    assert trial.equivalence.endswith("optimizer=tomorrow")


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


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(axes=_AXES, exclude=_AXES, other=_AXES)
def test_every_point_is_in_exactly_one_place(
    plan_of: PlanOf, axes: Any, exclude: Any, other: Any
) -> None:
    subsets = {"one": {"axes": {}}, "two": {"axes": other}} if other else {}
    keys = {"axes": axes, "subsets": subsets, "exclude": [exclude] if exclude else []}
    planned = plan_of(**keys)
    specs = [*planned.trials, *(record.spec for record in planned.ruled_out)]
    assert planned == plan_of(**keys)
    assert max(Counter(spec.trial_id for spec in specs).values(), default=1) == 1
    assert all(list(spec.choices) == list(specs[0].choices) for spec in specs)
    assert all(spec_from_json(to_json(spec)) == spec for spec in specs[:2])
    whole = plan_of(axes=axes, subsets=subsets)
    left_out = len(whole.trials) + len(whole.ruled_out) - len(specs)
    assert left_out >= 0
    if exclude and "effective_batch" not in exclude:
        assert not any(
            all(spec.choices.get(axis) in values for axis, values in exclude.items())
            for spec in specs
        )
    if not exclude and not other:
        # Two effective batches over one micro-batch are never the same point; every point of the grid is here.
        size = 1
        for values in axes.values():
            size *= len(values)
        assert len(specs) == size


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_nothing_in_a_shipped_config_is_ruled_out(path: Path) -> None:
    config = load_config(path)
    planned = plan(config)
    assert planned.trials
    assert not planned.ruled_out
    assert str(len(planned.trials)) in describe(planned, config)


def test_bert_large_is_288_points() -> None:
    assert len(plan(load_config(ROOT / "configs/bert_large.yaml")).trials) == 288


def test_all_techniques_has_every_variant_of_every_axis() -> None:
    planned = plan(load_config(ROOT / "configs/all_techniques.yaml"))
    for name, axis in AXES.items():
        chosen = {trial.choices[name] for trial in planned.trials}
        assert chosen >= axis.variants.keys() if axis.variants else len(chosen) > 1, name


def test_the_description_of_a_sweep(plan_of: PlanOf, tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(
        "model: {task: causal-lm, architecture: llama}\n"
        "axes: {micro_batch: [2, 3], effective_batch: 4, precision: [bf16, fp32]}\n"
        "budgets: [16GiB]\n"
    )
    config = load_config(path)
    text = re.sub(r"\b[0-9a-f]{12}\b", "<trial id>", describe(plan(config), config))
    assert f"{text}\n" == (ROOT / "tests/golden/description.txt").read_text()


_DRY_RUN = """
import sys
from orchestrator.planning.config import load_config
from orchestrator.reporting.plan import describe
from orchestrator.planning.plan import plan
for path in sys.argv[1:]:
    config = load_config(path)
    describe(plan(config), config)
heavy = {"ray", "torch", "transformers", "pandas", "pyarrow", "numpy"} & sys.modules.keys()
sys.exit(f"imported {sorted(heavy)}" if heavy else 0)
"""


def test_planning_imports_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _DRY_RUN, *map(str, SHIPPED)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
