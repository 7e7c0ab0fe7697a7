"""Techniques with parameters in a config file: read, checked and planned."""

from collections.abc import Callable

import pytest

from jobs.techniques import AXES
from orchestrator.planning.choices.axes import read_technique
from orchestrator.planning.plan import plan
from orchestrator.planning.settings import SweepConfig

Load = Callable[[str], SweepConfig]


def test_parameters_in_every_place_of_a_file_become_one_written_form(load):
    config = load(
        "axes: {adapter: [lora_r8, {lora: {use_dora: true, r: 16}}]}\n"
        "trials: [{adapter: {vera: {}}}, {adapter: 'lora( r = 4 )'}]\n"
        "baseline: {adapter: {lora: {r: 2}}}\n"
        "exclude: [{adapter: lora_r8}]\n"
    )
    adapters = [spec.choices["adapter"] for spec in plan(config).trials]
    assert adapters == ["lora(r=16,use_dora=true)", "vera", "lora(r=4)"]
    assert config.baseline["adapter"] == "lora(r=2)"
    assert config.axes_in_play == ("adapter",)


def test_mapping_and_text_are_the_same_trial(load):
    mapping = load("axes: {adapter: {lora: {lora_dropout: 0, target_modules: [q_proj]}}}")
    text = load("axes: {adapter: 'lora(target_modules=[q_proj], lora_dropout=0.0)'}")
    assert plan(mapping).trials[0].trial_id == plan(text).trials[0].trial_id


@pytest.mark.parametrize("axis", ["adapter", "base"])
def test_every_family_reads_its_class_whole(axis):
    for name, family in AXES[axis].families.items():
        value, mistakes = read_technique(AXES[axis], {name: {"no_such_parameter": 1}})
        assert (value, len(mistakes)) == ("", 1), f"{family.config_class} was not found"
