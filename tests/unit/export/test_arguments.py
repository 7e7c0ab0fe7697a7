"""A trial's settings as each library's own files."""

from __future__ import annotations

import dataclasses

from orchestrator.export.arguments import (
    accelerate,
    deepspeed,
    training_arguments,
    with_accumulation,
)
from tests.conftest import SpecFactory


def test_training_arguments_have_the_names_every_version_takes(tiny_spec: SpecFactory) -> None:
    spec = tiny_spec({"activations": "checkpoint", "optimizer": "sgd"})
    settings = training_arguments(spec, epochs=3)
    assert settings["gradient_checkpointing"] is True
    assert (settings["optim"], settings["num_train_epochs"]) == ("sgd", 3)
    assert (settings["report_to"], settings["save_strategy"]) == ("none", "no")


def test_accelerate_file_of_a_deepspeed_trial_has_no_precision(tiny_spec: SpecFactory) -> None:
    spec = tiny_spec({"offload": "zero3_nvme_both", "precision": "bf16"})
    settings = accelerate(spec)
    assert settings["distributed_type"] == "DEEPSPEED"
    assert settings["deepspeed_config"] == {
        "deepspeed_config_file": "deepspeed.json",
        "zero3_init_flag": True,
    }
    assert "mixed_precision" not in settings


def test_accelerate_file_has_the_trials_precision(tiny_spec: SpecFactory) -> None:
    assert accelerate(tiny_spec({"precision": "bf16"}))["mixed_precision"] == "bf16"
    assert accelerate(tiny_spec({"precision": "fp32"}))["mixed_precision"] == "no"


def test_deepspeed_file_has_the_nvme_folder_even_with_quotes(tiny_spec: SpecFactory) -> None:
    spec = tiny_spec({"offload": "zero3_nvme_both"})
    needs = dataclasses.replace(spec.needs, nvme_path='/mnt/"disk"')
    settings = deepspeed(dataclasses.replace(spec, needs=needs))
    assert settings is not None
    offload = settings["zero_optimization"]["offload_optimizer"]
    assert offload["nvme_path"] == '/mnt/"disk"'
    assert deepspeed(tiny_spec()) is None


def test_with_accumulation_changes_the_choice_and_the_argument(tiny_spec: SpecFactory) -> None:
    spec = with_accumulation(tiny_spec(), 6)
    assert (spec.accumulation, spec.choices["accumulation"]) == (6, 6)
