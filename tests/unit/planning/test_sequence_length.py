"""The sequence-length axis in a plan: which data a trial has, and what it is compared with."""

import contextlib

import pytest

from orchestrator.planning.plan import plan
from orchestrator.planning.prechecks.mistakes import check_files
from orchestrator.planning.problems import ConfigError
from tests.support.config_files import config_of

GPT2 = {"task": "causal-lm", "architecture": "gpt2"}


def test_plan_with_the_axis_gives_each_trial_its_length(tmp_path):
    lengths = [1024, 4096]
    data = {"synthetic": {"sequence_length": 1024}}
    specs = plan(config_of(tmp_path, data=data, axes={"sequence_length": lengths})).trials
    assert [spec.data.synthetic.sequence_length for spec in specs if spec.data.synthetic] == lengths
    recipes = [spec.training_recipe.by_axis for spec in specs]
    assert recipes == [{}, {"sequence_length": 4096}]


def test_plan_without_the_axis_keeps_the_trial_ids(tmp_path):
    data = {"synthetic": {"sequence_length": 64}}
    [plain] = plan(config_of(tmp_path, data=data)).trials
    [named] = plan(config_of(tmp_path, data=data, axes={"sequence_length": [64]})).trials
    assert plain.choices["sequence_length"] == "data"
    assert named.trial_id == plain.trial_id
    # The id of this trial before there was such an axis.
    assert plain.trial_id == "553110fe17fc"


def test_plan_with_a_file_cuts_its_rows(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"input_ids": [1, 2, 3]}\n')
    data = {"file": {"path": "rows.jsonl", "max_length": 2048}}
    [spec] = plan(config_of(tmp_path, data=data, axes={"sequence_length": [512]})).trials
    assert (spec.data.file.max_length, spec.data.file.max_tokens) == (512, 512)


LONG_ROWS = {"synthetic": {"sequence_length": 4096}}


@pytest.mark.parametrize(
    ("keys", "is_refused"),
    [
        ({"axes": {"sequence_length": [512, 4096]}}, True),
        ({"subsets": {"long": {"axes": {"sequence_length": 4096}}}}, True),
        ({"trials": [{"sequence_length": 4096}]}, True),
        ({"baseline": {"sequence_length": 4096}, "axes": {"micro_batch": [1, 2]}}, True),
        ({"axes": {"sequence_length": ["data", 512]}, "data": LONG_ROWS}, True),
        ({"trials": [{"sequence_length": 512}], "data": LONG_ROWS}, False),
        ({"subsets": {"short": {"axes": {"sequence_length": 512}}}, "data": LONG_ROWS}, False),
    ],
)
def test_prechecks_refuse_a_length_beyond_the_positions_that_a_trial_has(
    tmp_path, keys, is_refused
):
    refused = pytest.raises(ConfigError, match="4096 tokens, and gpt2 has positions for 1024")
    with refused if is_refused else contextlib.nullcontext():
        check_files(config_of(tmp_path, model=GPT2, **keys))


def test_prechecks_refuse_a_sequence_length_of_images(tmp_path):
    model = {"task": "image-classification", "architecture": "vit"}
    config = config_of(tmp_path, model=model, axes={"sequence_length": [196, 784]})
    with pytest.raises(ConfigError, match="images have no tokens: remove this axis"):
        check_files(config)
