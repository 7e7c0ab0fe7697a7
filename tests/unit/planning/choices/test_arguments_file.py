"""The user's own TrainingArguments file: taken as it is, with a line about what is left aside."""

import json
import re
from pathlib import Path

import pytest

from orchestrator import api
from orchestrator.planning.choices.arguments import FORMER, argument_names
from orchestrator.planning.config import ConfigError, SweepConfig
from orchestrator.planning.plan import plan
from tests.support.config_files import config_of
from tests.support.recorded_runs import RECORDED

MODEL = "model: {task: sequence-classification, architecture: bert}\n"


def load(folder: Path, arguments: object, more: str = "", name: str = "mine.json") -> SweepConfig:
    (folder / name).write_text(json.dumps(arguments))
    return config_of(folder, f"{MODEL}training_arguments: {name}\n{more}")


def test_users_file_is_taken_and_the_rest_left_aside_in_a_line(tmp_path):
    mine = {
        "output_dir": "out",
        "eval_strategy": "epoch",
        "save_strategy": "epoch",
        "report_to": "wandb",
        "num_train_epochs": 3,
        "logging_steps": 50,
        "per_device_train_batch_size": 16,
        "gradient_accumulation_steps": 4,
        "warmup_ratio": 0.1,
        "learning_rate": 2e-5,
        "weight_decay": 0.01,
        "hub_token": "hf_secret",
    }
    config = load(tmp_path, mine, "axes: {micro_batch: [1, 2]}\n")
    kept = {"learning_rate": 2e-5, "weight_decay": 0.01, "warmup_steps": 0.1}
    assert config.training_arguments == kept
    assert config.baseline["accumulation"] == 4
    (note,) = config.notes
    assert "\n" not in note
    assert "left aside: output_dir, eval_strategy" in note
    assert "per_device_train_batch_size (the axis micro_batch decides it)" in note
    kept_by = "a measurement needs none of it; files to train with keep it"
    assert f"num_train_epochs, logging_steps ({kept_by})" in note
    assert "hf_secret" not in json.dumps(config.to_json()) + note


@pytest.mark.parametrize("is_file", [True, False])
def test_deepspeed_file_that_the_arguments_name_is_read(is_file, tmp_path):
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 2}}')
    mine = {"deepspeed": "ds.json", "weight_decay": 0.01}
    if is_file:
        config = load(tmp_path, mine)
    else:
        config = config_of(tmp_path, f"{MODEL}training_arguments: {json.dumps(mine)}\n")
    assert config.deepspeed == {"zero_optimization": {"stage": 2}}
    assert config.baseline["offload"] == "custom"
    assert "deepspeed" not in "".join(config.notes)
    (tmp_path / "ds.json").unlink()
    with pytest.raises(ConfigError, match=r"deepspeed: there is no file .*ds\.json"):
        load(tmp_path, mine)


def test_file_that_transformers_wrote_leaves_every_axis_at_its_default(tmp_path):
    transformers = pytest.importorskip("transformers")
    arguments = transformers.TrainingArguments(output_dir="out", learning_rate=1e-4, use_cpu=True)
    # Without a GPU the Trainer unpins its memory, which is a choice on the axis dataloader.
    written = {**json.loads(arguments.to_json_string()), "dataloader_pin_memory": True}
    config = load(tmp_path, written)
    assert config.training_arguments.get("learning_rate") == 1e-4
    plain = load(tmp_path, {})
    assert dict(config.baseline) == dict(plain.baseline)
    assert len(config.notes) == 1


def test_file_names_its_deepspeed_file_as_the_trainer_reads_it(tmp_path):
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "ds.json").write_text('{"zero_optimization": {"stage": 2}}')
    (folder / "mine.json").write_text('{"deepspeed": "ds.json"}')
    config = config_of(tmp_path, f"{MODEL}training_arguments: theirs/mine.json\n")
    assert config.deepspeed == {"zero_optimization": {"stage": 2}}
    assert config.baseline["offload"] == "custom"


def test_pickled_arguments_are_refused_with_what_to_write(tmp_path):
    (tmp_path / "training_args.bin").write_bytes(b"PK\x03\x04\xff\xfe")
    with pytest.raises(ConfigError, match=r"write TrainingArguments\.to_json_string"):
        config_of(tmp_path, f"{MODEL}training_arguments: training_args.bin\n")


def test_exported_arguments_are_accepted_and_mean_the_same(tmp_path):
    run = api.load(RECORDED / "2026-11-21-docs_table-h200")
    answer = run.recommend()
    run.export(answer.best, tmp_path / "export")
    text = f"{MODEL}training_arguments: export/training_arguments.yaml\n"
    (trial,) = plan(config_of(tmp_path, text)).trials
    best = answer.best.configuration
    assert trial.micro_batch == best.choices["micro_batch"]
    assert trial.accumulation == answer.best.accumulation


def test_former_arguments_are_none_of_the_installed_transformers():
    assert argument_names().isdisjoint(FORMER.split())


def test_former_name_of_an_optimizer_is_left_aside_with_what_it_is_today(tmp_path):
    (note,) = load(tmp_path, {"optim": "sgd", "adafactor": True}).notes
    assert "adafactor (today it is written optim: adafactor)" in note


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("axes: {learning_rate: [1.0e-4, abc]}", 'axes.learning_rate[1]: "abc" is no number'),
        ("axes: {lr_scheduler_type: cosin}", 'did you mean "cosine"?'),
        ("training_arguments: {num_train_epochs: three}", '"three" is no number'),
        ("training_arguments: {max_steps: all}", '"all" is no number'),
        ("training_arguments: {tf32: sometimes}", "takes bool | None, not the text"),
        ("training_arguments: {weight_decay: [1]}", "takes float, not a list"),
        ("training_arguments: {max_grad_norm: true}", "takes float, not the boolean true"),
        ("deepspeed: {zero_optimization: {stage: 7}}", "stage: must be 0, 1, 2 or 3"),
        ("axes: {adapter: qlora}", "QLoRA is adapter: lora_r8_all_linear with base: bnb_4bit"),
        ("axes: {optimizer: adam}", 'did you mean "adamw_torch_fused"?'),
    ],
)
def test_value_that_no_training_takes_is_refused_with_what_is_meant(text, message, tmp_path):
    with pytest.raises(ConfigError, match=re.escape(message)):
        config_of(tmp_path, text)
