"""A trial's settings as each library's own files."""

import dataclasses

import pytest

from orchestrator.export.arguments import accelerate, deepspeed, training_arguments
from orchestrator.export.generated_code import NotExportableError


def test_training_arguments_are_the_trials_and_evaluate_and_save(tiny_spec):
    spec = tiny_spec({"activations": "checkpoint", "optimizer": "sgd", "micro_batch": 2})
    settings = training_arguments(spec, epochs=3)
    assert settings["gradient_checkpointing"] is True
    assert (settings["optim"], settings["num_train_epochs"]) == ("sgd", 3)
    assert (settings["eval_steps"], settings["save_steps"]) == (0.1, 0.1)
    assert settings["per_device_eval_batch_size"] == 2


def test_deepspeed_file_of_zero3_saves_whole_weights(tiny_spec):
    settings = deepspeed(tiny_spec({"offload": "zero3"}))
    assert settings["zero_optimization"]["stage3_gather_16bit_weights_on_model_save"] is True
    other = deepspeed(tiny_spec({"offload": "zero2"}))
    assert "stage3_gather_16bit_weights_on_model_save" not in other["zero_optimization"]


def test_accelerate_file_has_the_trials_precision_if_deepspeed_has_none(tiny_spec):
    assert accelerate(tiny_spec({"precision": "bf16"}))["mixed_precision"] == "bf16"
    assert accelerate(tiny_spec({"precision": "fp32"}))["mixed_precision"] == "no"
    settings = accelerate(tiny_spec({"offload": "zero3_nvme_both", "precision": "bf16"}))
    assert settings["distributed_type"] == "DEEPSPEED"
    own = {"deepspeed_config_file": "deepspeed.json", "zero3_init_flag": True}
    assert settings["deepspeed_config"] == own
    assert "mixed_precision" not in settings


def test_deepspeed_file_has_the_nvme_folder_even_with_quotes(tiny_spec):
    spec = tiny_spec({"offload": "zero3_nvme_both"})
    needs = dataclasses.replace(spec.needs, nvme_path='/mnt/"disk"')
    settings = deepspeed(dataclasses.replace(spec, needs=needs))
    offload = settings["zero_optimization"]["offload_optimizer"]
    assert offload["nvme_path"] == '/mnt/"disk"'
    assert deepspeed(tiny_spec()) is None


@pytest.mark.parametrize(
    ("own", "was_measured", "size"),
    [
        # In training such a loss never holds all logits; an evaluation of the micro-batch would.
        ({}, False, 1),
        # What was measured is kept: the default of transformers.
        ({}, True, 8),
        ({"per_device_eval_batch_size": 64}, False, 64),
    ],
)
def test_evaluation_of_a_fused_loss_takes_one_row_at_a_time_unless_measured(
    own, was_measured, size, tiny_spec
):
    choices = {"micro_batch": 16, "loss": "chunked"}
    spec = tiny_spec(choices, training_arguments=own, evaluate_and_save=was_measured)
    assert training_arguments(spec, epochs=1)["per_device_eval_batch_size"] == size


@pytest.mark.parametrize(
    "wrong", [{"no_such_field": 1}, {"learning_rate": float("nan")}, {"optim_args": "\ud800"}]
)
def test_training_arguments_that_a_sweep_cannot_set_are_refused(wrong, tiny_spec):
    with pytest.raises(NotExportableError):
        training_arguments(tiny_spec(training_arguments=wrong), epochs=1)
