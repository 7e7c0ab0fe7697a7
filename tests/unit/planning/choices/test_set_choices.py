"""Choices of the command line in place of a file's: ``--set AXIS=VALUE``."""

import re

import pytest

from orchestrator.planning.plan import plan
from orchestrator.planning.problems import ConfigError
from tests.support.config_files import config_of

AXES = "axes: {micro_batch: [1, 2], precision: [bf16, fp32]}\n"
SUBSETS = "subsets: {a: {axes: {precision: [tf32]}}, b: {axes: {optimizer: [sgd]}}}\n"


@pytest.mark.parametrize(
    ("text", "choices", "trials"),
    [
        (AXES, ["precision=tf32"], [(1, "tf32"), (2, "tf32")]),
        (AXES, ["precision=[tf32, fp32]", "micro_batch=4"], [(4, "tf32"), (4, "fp32")]),
        ("", ["micro_batch=[4, 8]"], [(4, "fp32"), (8, "fp32")]),
        ("", ["precision=bf16"], [(8, "bf16")]),
        ("baseline: {precision: bf16}", ["precision=tf32"], [(8, "tf32")]),
        (
            "trials: [{precision: bf16}, {micro_batch: 2}]",
            ["precision=tf32"],
            [(8, "tf32"), (2, "tf32")],
        ),
        (SUBSETS, ["precision=bf16"], [(8, "bf16"), (8, "bf16")]),
    ],
)
def test_choice_stands_wherever_the_file_names_its_axis_and_in_the_baseline(
    text, choices, trials, tmp_path
):
    planned = plan(config_of(tmp_path, text, choices=choices), has_gpu=True).trials
    found = [(trial.micro_batch, trial.choices["precision"]) for trial in planned]
    assert found == trials


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("precison=bf16", '--set: axes.precison: unknown axis; did you mean "precision"?'),
        ("micro_batch=four", "--set: axes.micro_batch: must be an integer from 1"),
        ("precision=bf61", '--set: axes.precision: "bf61" is not known; did you mean "bf16"?'),
        ("precision", "--set: axes.precision: must be a name, not nothing"),
        ("precision=[", "--set:2: not valid YAML"),
        ("precision=bf16", "training_arguments.fp16: contradicts the axis"),
    ],
)
def test_choice_that_cannot_be_made_is_refused(choice, message, tmp_path):
    with pytest.raises(ConfigError, match=re.escape(message)):
        config_of(tmp_path, training_arguments={"fp16": True}, choices=[choice])
