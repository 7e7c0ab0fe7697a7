"""Configurations: broken ones are answered with line and suggestion, good ones become frozen data."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import pytest
import yaml

from orchestrator.planning.arguments import RENAMED, architecture_names, argument_names
from orchestrator.planning.config import ConfigError, SweepConfig, load_config
from orchestrator.planning.schema import json_schema
from orchestrator.units import duration_seconds, size_bytes

ROOT = Path(__file__).parents[3]
BROKEN = ROOT / "tests/golden/broken_configs"
SHIPPED = sorted((ROOT / "configs").glob("*.yaml"))
# What takes the installed transformers, another file or another key to see.
BEYOND_A_SCHEMA = {"04", "11", "12", "19", "21", "29", "33", "34", "35", "37", "42"}
MODEL = "model: {task: causal-lm, architecture: llama}\n"


@pytest.fixture
def load(tmp_path: Path):
    """Load a configuration from its text, a model added."""

    def load(text: str) -> SweepConfig:
        path = tmp_path / "sweep.yaml"
        path.write_text(MODEL + text)
        return load_config(path)

    return load


@pytest.mark.parametrize("path", sorted(BROKEN.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_broken_config_is_answered_as_recorded(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(BROKEN)
    with pytest.raises(ConfigError) as caught:
        load_config(path.name)
    if "RECORD_GOLDEN" in os.environ:
        path.with_suffix(".txt").write_text(f"{caught.value}\n")
    assert f"{caught.value}\n" == path.with_suffix(".txt").read_text(), (
        "if that is better: RECORD_GOLDEN=1 pytest"
    )


def test_a_missing_file_is_one_problem(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml:1: cannot read it: No such file"):
        load_config(tmp_path / "none.yaml")


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_config_loads_and_names_its_schema(path: Path) -> None:
    assert load_config(path).name == path.stem
    assert path.read_text().startswith("# yaml-language-server: $schema=schema.json\n")


def test_the_committed_schema_is_current() -> None:
    assert json.loads((ROOT / "configs/schema.json").read_text()) == json_schema(), (
        "python -m orchestrator.planning.schema > configs/schema.json"
    )


@pytest.mark.parametrize("path", [*SHIPPED, *BROKEN.glob("*.yaml")], ids=lambda path: path.stem)
def test_an_editor_agrees_about_the_good_and_most_of_the_bad(path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    try:
        value = yaml.safe_load(path.read_text())
        jsonschema.Draft202012Validator(json_schema()).validate(value)
        is_good = True
    except (yaml.YAMLError, RecursionError, jsonschema.ValidationError):
        is_good = False
    assert is_good == (path in SHIPPED or path.stem[:2] in BEYOND_A_SCHEMA)


def test_defaults(load) -> None:
    config = load("")
    assert (config.name, config.output) == ("sweep", Path("runs/sweep"))
    assert config.data.synthetic is not None
    assert config.baseline["optimizer"] == "adamw_torch_fused"
    assert config.axes_in_play == ()
    assert json.loads(json.dumps(config.to_json()))["measure"]["steps"] == 10


def test_python_floats_are_numbers(load) -> None:
    assert load("training_arguments: {learning_rate: 5e-5}").training_arguments == {
        "learning_rate": 5e-5
    }


def test_own_arguments_take_the_axis_they_decide(load) -> None:
    config = load("training_arguments: {optim: sgd, per_device_train_batch_size: 3}")
    assert (config.baseline["optimizer"], config.baseline["micro_batch"]) == ("custom", 3)


def test_the_new_name_of_a_renamed_argument_is_owned_too(load) -> None:
    assert (
        load("training_arguments: {activation_checkpointing: true}").baseline["activations"]
        == "custom"
    )


def test_baseline_is_each_axiss_first_value(load) -> None:
    config = load("axes: {precision: [bf16, fp32], micro_batch: 2}\nbaseline: {micro_batch: 4}")
    assert (config.baseline["precision"], config.baseline["micro_batch"]) == ("bf16", 4)


def test_arguments_from_a_file_beside_the_config(load, tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text('{\n\t"weight_decay": 0.1\n}')
    assert load("training_arguments: mine.json").training_arguments == {"weight_decay": 0.1}


def test_a_dataset_is_found_from_anywhere(load, tmp_path: Path) -> None:
    file = load("data: {file: {path: train.jsonl, tokenizer: mine}}").data.file
    assert file is not None
    assert (file.path, file.format) == (str(tmp_path / "train.jsonl"), "json")


@pytest.mark.parametrize(
    ("named", "found"),
    [
        ("mine", "{beside}/mine"),
        ("./mine", "{beside}/mine"),
        ("../nowhere", "{above}/nowhere"),
        ("/nowhere", "/nowhere"),
        ("gpt2", "gpt2"),
        ("org/mine", "org/mine"),
    ],
)
def test_a_checkpoint_of_ones_own_is_found_from_anywhere(
    tmp_path: Path, named: str, found: str
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "sweep.yaml").write_text(
        f"model: {{task: causal-lm, name_or_path: {named}}}\n"
        f"data: {{file: {{path: train.jsonl, tokenizer: {named}}}}}\n"
    )
    config = load_config(tmp_path / "sweep.yaml")
    assert config.data.file is not None
    expected = found.format(beside=tmp_path, above=tmp_path.parent)
    assert (config.model.name_or_path, config.data.file.tokenizer) == (expected, expected)


def test_an_anchor_may_be_merged_twice(load) -> None:
    text = "trials:\n  - &base {micro_batch: 2, precision: bf16}\n  - {<<: *base, micro_batch: 4}\n  - {<<: *base}"
    assert [trial["micro_batch"] for trial in load(text).trials] == [2, 4, 2]


def test_without_transformers_every_argument_is_accepted(
    load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.planning.base_arguments.argument_names", lambda: None)
    monkeypatch.setattr("orchestrator.planning.config.architecture_names", lambda: None)
    assert load("training_arguments: {of_next_year: 1}").training_arguments == {"of_next_year": 1}


@pytest.mark.parametrize(
    ("written", "expected"),
    [("16GiB", 16 * 2**30), ("24GB", 24 * 10**9), ("1.5 MiB", 3 * 2**19), (4096, 4096)],
)
def test_sizes(written: object, expected: int) -> None:
    assert size_bytes(written) == expected


@pytest.mark.parametrize(
    ("written", "expected"), [("300s", 300), ("5m", 300), ("1h30m", 5400), (2.5, 2.5)]
)
def test_durations(written: object, expected: float) -> None:
    assert duration_seconds(written) == expected


@pytest.mark.parametrize(
    "written", ["", "5", "five", -1, 0, True, None, float("inf"), float("nan"), "0s", "1m1h"]
)
def test_bad_durations(written: object) -> None:
    with pytest.raises(ValueError, match="must be a time"):
        duration_seconds(written)


@pytest.mark.parametrize("written", ["", "16", "16G", "-1GiB", 0, -5, 1.5, True, None, "0B"])
def test_bad_sizes(written: object) -> None:
    with pytest.raises(ValueError, match="must be a size"):
        size_bytes(written)


@pytest.mark.slow
def test_names_read_from_the_source_are_those_of_the_library() -> None:
    transformers = pytest.importorskip("transformers")
    fields = {
        field.name for field in dataclasses.fields(transformers.TrainingArguments) if field.init
    }
    names, architectures = argument_names(), architecture_names()
    assert names is not None
    assert fields == names & fields
    assert names - fields <= {*RENAMED, *RENAMED.values()} | {"_VALID_DICT_FIELDS"}
    assert architectures is not None
    assert set(transformers.CONFIG_MAPPING.keys()) <= architectures
