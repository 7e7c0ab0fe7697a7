"""``load_config``: broken files are answered with line and suggestion, good ones become data."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from orchestrator.planning.config import ConfigError, load_config
from orchestrator.planning.plan import plan
from tests.support.commands import ROOT
from tests.support.config_files import MODEL, SHIPPED, config_of

BROKEN = ROOT / "tests/golden/broken_configs"


@pytest.mark.parametrize("path", sorted(BROKEN.glob("*.yaml")), ids=lambda path: path.stem)
def test_load_config_broken_file_gives_the_recorded_problems(path, monkeypatch):
    monkeypatch.chdir(BROKEN)
    with pytest.raises(ConfigError) as caught:
        load_config(path.name)
    if "RECORD_GOLDEN" in os.environ:
        path.with_suffix(".txt").write_text(f"{caught.value}\n")
    assert f"{caught.value}\n" == path.with_suffix(".txt").read_text(), (
        "if that is better: RECORD_GOLDEN=1 pytest"
    )


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_load_config_shipped_file_loads_and_names_its_schema(path):
    assert load_config(path).name == path.stem
    assert path.read_text().startswith("# yaml-language-server: $schema=schema.json\n")


@pytest.mark.parametrize(
    "name", ["../../tmp/x", "/tmp/x", "a/b", "a\\\\b", "..", " ", "a\\u202eb", "a" * 101]
)
def test_load_config_name_that_is_a_path_is_refused(load, name):
    with pytest.raises(ConfigError, match=r"sweep\.yaml:2: name: (is a name, not a path|must be)"):
        load(f'name: "{name}"\n')


@pytest.mark.parametrize("size", [2**20, 10 * 2**20])
def test_load_config_large_file_is_refused_unparsed(tmp_path, size):
    path = tmp_path / "sweep.yaml"
    path.write_text(MODEL + "# " + "x" * size)
    with pytest.raises(ConfigError, match="larger than 1 MiB"):
        load_config(path)
    with pytest.raises(ConfigError, match="larger than 1 MiB"):
        load_config("/dev/zero")


def test_load_config_pipe_without_a_writer_is_empty_at_once(tmp_path):
    os.mkfifo(tmp_path / "sweep.yaml")
    with pytest.raises(ConfigError, match="the file is empty"):
        load_config(tmp_path / "sweep.yaml")


def test_load_config_pipe_is_read_to_its_end(tmp_path):
    # The shell's <(command) is such a pipe.
    command = f"sleep 0.3; printf %s '{MODEL}'"
    with subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE) as writer:
        config = load_config(f"/dev/fd/{writer.stdout.fileno()}")
    assert config.model.task


def test_load_config_model_alone_gives_defaults(load):
    config = load("")
    assert (config.name, config.output) == ("sweep", Path("runs/sweep"))
    assert config.data.synthetic is not None
    assert config.baseline["optimizer"] == "adamw_torch_fused"
    assert config.axes_in_play == ()
    assert json.loads(json.dumps(config.to_json()))["measure"]["steps"] == 10


def test_load_config_exponent_without_dot_is_a_number(load):
    assert load("training_arguments: {learning_rate: 5e-5}").training_arguments == {
        "learning_rate": 5e-5
    }


@pytest.mark.parametrize(
    ("arguments", "axis", "value"),
    [
        ("bf16: true", "precision", "bf16"),
        ("gradient_checkpointing: true", "activations", "checkpoint"),
        ("activation_checkpointing: true", "activations", "checkpoint"),
        ("torch_compile: true", "compile", "inductor"),
        ("optim: sgd", "optimizer", "sgd"),
        ("dataloader_num_workers: 2", "dataloader", "workers_2"),
        ("per_device_train_batch_size: 3", "micro_batch", 3),
    ],
)
def test_baseline_own_argument_is_a_value_of_its_axis(load, arguments, axis, value):
    config = load(f"training_arguments: {{{arguments}}}")
    assert (config.baseline[axis], config.training_arguments) == (value, {})


def test_own_arguments_that_no_value_stands_for_stay(load):
    config = load("training_arguments: {fp16: true, tf32: true}")
    assert config.baseline["precision"] == "custom"
    assert config.training_arguments == {"fp16": True, "tf32": True}


def test_baseline_not_given_is_each_axis_first_value(load):
    config = load("axes: {precision: [bf16, fp32], micro_batch: 2}\nbaseline: {micro_batch: 4}")
    assert (config.baseline["precision"], config.baseline["micro_batch"]) == ("bf16", 4)


def test_training_arguments_are_read_from_a_file(load, tmp_path):
    (tmp_path / "mine.json").write_text('{\n\t"weight_decay": 0.1\n}')
    assert load("training_arguments: mine.json").training_arguments == {"weight_decay": 0.1}


def test_data_file_becomes_absolute_with_its_format(load, tmp_path):
    file = load("data: {file: {path: train.jsonl, tokenizer: mine}}").data.file
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
def test_checkpoint_folder_becomes_absolute_hub_name_stays(tmp_path, named, found):
    (tmp_path / "mine").mkdir()
    (tmp_path / "sweep.yaml").write_text(
        f"model: {{task: causal-lm, name_or_path: {named}}}\n"
        f"data: {{file: {{path: train.jsonl, tokenizer: {named}}}}}\n"
    )
    config = load_config(tmp_path / "sweep.yaml")
    expected = found.format(beside=tmp_path, above=tmp_path.parent)
    assert (config.model.name_or_path, config.data.file.tokenizer) == (expected, expected)


def test_anchor_merged_twice_is_allowed(load):
    trials = load(
        """
trials:
  - &base {micro_batch: 2, precision: bf16}
  - {<<: *base, micro_batch: 4}
  - {<<: *base}
"""
    ).trials
    assert [trial["micro_batch"] for trial in trials] == [2, 4, 2]


def test_arguments_without_transformers_are_all_accepted(load, monkeypatch):
    monkeypatch.setattr("orchestrator.planning.choices.arguments.argument_names", lambda: None)
    monkeypatch.setattr("orchestrator.planning.config.model_types", dict)
    monkeypatch.setattr("orchestrator.planning.config.model_key_problems", lambda *_: ())
    assert load("training_arguments: {use_cache: true}").training_arguments == {"use_cache": True}


def test_follow_up_profile_all_profiles_every_trial(load):
    config = load("follow_up: {profile: all, verify_budgets: false, tie_break_rounds: 0}")
    policy = config.follow_up
    assert config.measure.profile
    assert (policy.profiles, policy.verify_budgets, policy.tie_break_rounds) == (0, False, 0)


def test_steps_epoch_is_never_stopped_early(load):
    measure = load("measure: {steps: epoch, relative_error: 0.5}").measure
    assert (measure.steps, measure.relative_error) == (None, 0.0)


def test_pasted_config_json_is_taken_and_its_data_type_named(tmp_path):
    path = tmp_path / "sweep.yaml"
    text = "model: {task: causal-lm, architecture: llama, config: {model_type: llama, %s}}\n"
    path.write_text(text % "torch_dtype: bfloat16, architectures: [X], hidden_size: 64")
    config = load_config(path)
    assert config.model.config == {"hidden_size": 64}
    about, dtype = config.notes
    assert about.endswith("architectures, model_type")
    assert "torch_dtype: bfloat16 has no effect: the axis precision" in dtype
    path.write_text(text.replace("architecture: llama", "architecture: bert") % "hidden_size: 64")
    with pytest.raises(ConfigError, match=r'is "llama", and model.architecture is "bert"'):
        load_config(path)


def test_load_config_exclude_leaves_no_trial_is_refused(load):
    text = "axes: {micro_batch: [1, 3], precision: [bf16]}\nexclude: [{micro_batch: [1, 3]}]\n"
    with pytest.raises(ConfigError, match=r"sweep\.yaml:\d+: exclude: leaves no trial"):
        load(text)
    assert load(text.replace("[1, 3]}]", "1}]")).exclude


def test_folder_and_missing_file_are_answered_with_what_was_meant(tmp_path):
    (tmp_path / "reviews.yaml").touch()
    with pytest.raises(ConfigError, match=r"it is a folder; it has .*reviews\.yaml"):
        load_config(tmp_path)
    with pytest.raises(ConfigError, match=r'no such file; did you mean ".*reviews\.yaml"'):
        load_config(tmp_path / "review.yaml")


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


def test_damaged_json_is_called_json(tmp_path):
    (tmp_path / "sweep.json").write_text('{"model": ')
    with pytest.raises(ConfigError, match=r"sweep\.json:1: not valid JSON: Expecting value, in"):
        load_config(tmp_path / "sweep.json")


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
