"""The sequence-length axis in a plan: which data a trial has, and what it is compared with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan
from orchestrator.planning.prechecks.mistakes import check_files
from orchestrator.planning.problems import ConfigError
from orchestrator.planning.settings import SweepConfig

GPT2 = {"task": "causal-lm", "architecture": "gpt2"}


def _config(tmp_path: Path, **keys: Any) -> SweepConfig:
    path = tmp_path / "sweep.yaml"
    document = {"model": {"task": "causal-lm", "architecture": "llama"}, **keys}
    path.write_text(yaml.safe_dump(document))
    return load_config(path)


def test_plan_with_the_axis_gives_each_trial_its_length(tmp_path: Path) -> None:
    lengths = [1024, 4096]
    data = {"synthetic": {"sequence_length": 1024}}
    specs = plan(_config(tmp_path, data=data, axes={"sequence_length": lengths})).trials
    assert [spec.data.synthetic.sequence_length for spec in specs if spec.data.synthetic] == lengths
    recipes = [spec.training_recipe.by_axis for spec in specs]
    assert recipes == [{}, {"sequence_length": 4096}]


def test_plan_without_the_axis_keeps_the_trial_ids(tmp_path: Path) -> None:
    data = {"synthetic": {"sequence_length": 64}}
    [plain] = plan(_config(tmp_path, data=data)).trials
    [named] = plan(_config(tmp_path, data=data, axes={"sequence_length": [64]})).trials
    assert plain.choices["sequence_length"] == "data"
    assert named.trial_id == plain.trial_id
    # The id of this trial before there was such an axis.
    assert plain.trial_id == "553110fe17fc"


def test_plan_with_a_file_cuts_its_rows(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"input_ids": [1, 2, 3]}\n')
    data = {"file": {"path": "rows.jsonl", "max_length": 2048}}
    [spec] = plan(_config(tmp_path, data=data, axes={"sequence_length": [512]})).trials
    assert (spec.data.file.max_length, spec.data.file.max_tokens) == (512, 512)


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "long"])
def test_config_with_a_wrong_length_is_refused(tmp_path: Path, value: Any) -> None:
    with pytest.raises(ConfigError, match="sequence_length"):
        _config(tmp_path, axes={"sequence_length": [value]})


@pytest.mark.parametrize(
    "keys",
    [
        {"axes": {"sequence_length": [512, 4096]}},
        {"subsets": {"long": {"axes": {"sequence_length": 4096}}}},
        {"trials": [{"sequence_length": 4096}]},
        {"baseline": {"sequence_length": 4096}, "axes": {"micro_batch": [1, 2]}},
        {
            "axes": {"sequence_length": ["data", 512]},
            "data": {"synthetic": {"sequence_length": 4096}},
        },
    ],
)
def test_prechecks_refuse_a_length_beyond_the_positions(
    tmp_path: Path, keys: dict[str, Any]
) -> None:
    config = _config(tmp_path, model=GPT2, **keys)
    with pytest.raises(ConfigError, match="4096 tokens, and gpt2 has positions for 1024"):
        check_files(config)


@pytest.mark.parametrize(
    "keys",
    [
        {"trials": [{"sequence_length": 512}]},
        {"subsets": {"short": {"axes": {"sequence_length": 512}}}},
        {"axes": {"sequence_length": 4096}, "subsets": {"a": {"axes": {"sequence_length": 512}}}},
    ],
)
def test_prechecks_leave_a_length_that_no_trial_has(tmp_path: Path, keys: dict[str, Any]) -> None:
    data = {"synthetic": {"sequence_length": 4096}}
    check_files(_config(tmp_path, model=GPT2, data=data, **keys))


def test_prechecks_refuse_a_sequence_length_of_images(tmp_path: Path) -> None:
    model = {"task": "image-classification", "architecture": "vit"}
    config = _config(tmp_path, model=model, axes={"sequence_length": [196, 784]})
    with pytest.raises(ConfigError, match="images have no tokens: remove this axis"):
        check_files(config)
