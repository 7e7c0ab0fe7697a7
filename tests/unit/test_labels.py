"""How a configuration is named."""

import json
from collections.abc import Hashable
from pathlib import Path

import pytest

from jobs.spec import PLAIN, TrainingRecipe
from orchestrator.analysis.dataset import load_dataset
from orchestrator.labels import batch_label, label, recipe_label
from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan
from tests.support.recorded_runs import RECORDED

CONFIGS = Path(__file__).parents[2] / "configs"
GOLDEN = Path(__file__).parents[1] / "golden"

CHOICES = {
    "micro_batch": 64,
    "accumulation": 1,
    "precision": "bf16",
    "optimizer": "adamw_torch_fused",
    "activations": "keep",
    "learning_rate": 0.1,
}


@pytest.mark.parametrize("case", (GOLDEN / "labels.txt").read_text().splitlines()[1:])
def test_label_names_what_varies_and_departs_from_the_default(case):
    given, text = case.split(" => ")
    changes, axes = given.split(", ")
    assert label({**CHOICES, **json.loads(changes)}, axes.split()) == text


def test_batch_label_always_names_an_accumulation():
    assert batch_label({"micro_batch": 8, "accumulation": 2}, ()) == "batch 8×2"
    assert batch_label({"micro_batch": 8, "accumulation": 1}, ()) == ""


def test_recipe_label_lists_choices_in_a_fixed_order():
    recipe = TrainingRecipe.of({"optimizer": "sgd", "adapter": "lora_r8"})
    assert recipe_label(recipe) == "adapter=lora_r8 · optimizer=sgd"
    assert recipe_label(PLAIN) == "plain"


@pytest.mark.parametrize("table", sorted(RECORDED.glob("**/trials.parquet")), ids=str)
def test_labels_of_a_recorded_run_stand_for_one_configuration_each(table):
    run = load_dataset(table.parent)
    meant: dict[str, tuple[Hashable, ...]] = {}
    for row in run.rows:
        choices = tuple(row[column] for column in run.axes.values())
        assert meant.setdefault(run.row_label(row), choices) == choices


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_labels_of_a_shipped_config_stand_for_one_trial_each(path):
    config = load_config(path)
    labels = [label(trial.choices, config.axes_in_play) for trial in plan(config).trials]
    assert len(set(labels)) == len(labels)


def test_label_of_a_subset_names_the_axis_on_which_other_trials_have_the_baseline(tmp_path):
    path = tmp_path / "sweep.yaml"
    path.write_text(
        "model: {task: causal-lm, architecture: llama, config: {}}\n"
        "axes: {micro_batch: [4]}\n"
        "subsets: {eager: {axes: {}}, compiled: {axes: {compile: [inductor_regional]}}}\n"
    )
    config = load_config(path)
    eager, compiled = (label(trial.choices, config.axes_in_play) for trial in plan(config).trials)
    assert compiled == f"{eager} · inductor_regional".replace("baseline · ", "")
