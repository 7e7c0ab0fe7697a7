"""Whole trials of a tiny vision-language model: what trains, what is read back, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.record import Outcome, TrialRecord
from jobs.spec import DataSpec, TrialSpec
from jobs.trial.requirements import unmet_reason
from tests.conftest import build_tiny_spec
from tests.support.json_rows import file_of
from tests.support.one_trial import measured as measured_trial
from tests.support.vision_models import tiny_images, tiny_vision_model
from tests.support.vision_processors import picture, save_llava_processor

Run = Callable[..., TrialRecord]


def vision_spec(family: str = "qwen2_5_vl", **choices: Any) -> TrialSpec:
    """A trial of a tiny model of a family on random images with texts."""
    return replace(
        build_tiny_spec(choices),
        model=tiny_vision_model(family),
        data=DataSpec(synthetic=tiny_images(family)),
    )


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs a trial with these choices, each once."""
    records: dict[str, TrialRecord] = {}

    def run_once(
        family: str = "qwen2_5_vl", outcome: Outcome = Outcome.OK, **choices: Any
    ) -> TrialRecord:
        spec = vision_spec(family, **choices)
        if spec.trial_id not in records:
            folder = tmp_path_factory.mktemp("trial")
            records[spec.trial_id] = measured_trial(spec, folder, outcome)
        return records[spec.trial_id]

    return run_once


def test_trial_says_how_many_tokens_are_images(trial: Run) -> None:
    measured = trial().measurements
    assert measured["image_tokens_per_sample"] == 4
    # No position is padding, so all tokens are real.
    assert measured["real_tokens_per_second"] == measured["tokens_per_second"]
    assert measured["tokens_per_second"] == pytest.approx(40 * measured["samples_per_second"])
    assert measured["vision_parameters_trainable"] > 0
    assert measured["parameters_trainable"] == measured["parameters_total"]


def test_frozen_vision_tower_trains_all_but_the_tower(trial: Run) -> None:
    plain, frozen = trial().measurements, trial(vision="frozen").measurements
    assert frozen["vision_parameters_trainable"] == 0
    left_out = plain["parameters_trainable"] - frozen["parameters_trainable"]
    assert left_out == plain["vision_parameters_trainable"]
    assert frozen["optimizer_state_bytes"] < plain["optimizer_state_bytes"]
    assert frozen["peak_allocated_bytes"] < plain["peak_allocated_bytes"]


@pytest.mark.parametrize("adapter", ["lora_r8", "lora_r8_all_linear"])
def test_adapter_trains_the_language_model_alone(trial: Run, adapter: str) -> None:
    # CLIP's layers have the names of Llama's: q_proj, v_proj.
    record = trial("llava", adapter=adapter)
    assert record.measurements["vision_parameters_trainable"] == 0
    assert record.measurements["parameters_trainable"] > 0


def test_adapter_by_a_regular_expression_reaches_the_tower(trial: Run) -> None:
    record = trial("llava", adapter='lora(r=4,target_modules="model.vision_tower.*q_proj")')
    measured = record.measurements
    assert measured["vision_parameters_trainable"] == measured["parameters_trainable"] > 0


def test_quantized_base_is_the_language_models(trial: Run) -> None:
    record = trial(base="torchao_int8", adapter="lora_r8")
    measured = record.measurements
    assert measured["base_quantized_share"] == 1
    assert record.flags == ()
    # Projector and tower keep 16 bits, and so do the embeddings.
    assert measured["weights_16bit_bytes"] > 0


def test_chunked_loss_of_images_with_texts_equals_the_plain_one(trial: Run) -> None:
    plain, chunked = trial(accumulation=2), trial(accumulation=2, loss="chunked")
    assert chunked.measurements["loss_implementation"] == "chunked"
    assert chunked.steps["loss"] == pytest.approx(plain.steps["loss"], rel=1e-4)


def test_plain_loop_and_checkpointing_train_the_same(trial: Run) -> None:
    plain, checkpointed = trial(), trial(activations="checkpoint")
    assert checkpointed.steps["loss"] == pytest.approx(plain.steps["loss"], rel=1e-5)
    assert checkpointed.measurements["checkpointed_layers"] > 0
    trial(loop="accelerate")


@pytest.mark.parametrize(
    ("choices", "reason"),
    [
        ({"batching": "packed"}, "cuts rows into blocks of tokens"),
        ({"batching": "padding_free"}, "makes one sequence of all rows"),
        ({"attention": "varlen"}, "attention in a vision tower is not"),
        ({"loop": "trl_sft"}, "models of texts only"),
        ({"loss": "chunked"}, ""),
    ],
)
def test_technique_that_knows_no_images_is_unsupported(
    choices: dict[str, str], reason: str
) -> None:
    unmet = unmet_reason("task:causal-lm", vision_spec(**choices))
    assert reason in unmet
    assert bool(unmet) == bool(reason)


def test_virtual_tokens_before_images_are_unsupported(trial: Run) -> None:
    adapter = "prompt_tuning(num_virtual_tokens=4)"
    record = trial(outcome=Outcome.UNSUPPORTED, adapter=adapter)
    assert "virtual tokens would shift" in record.reason


def test_frozen_tower_of_another_task_is_unsupported(tmp_path: Path) -> None:
    spec = build_tiny_spec({"vision": "frozen"})
    record = measured_trial(spec, tmp_path, Outcome.UNSUPPORTED)
    assert "it is for the task image-text-to-text only" in record.reason


def test_trial_on_the_users_images_measures_the_worst_batch(tmp_path: Path) -> None:
    picture(32, 32).save(tmp_path / "0.png")
    rows = [
        {"image": "0.png", "prompt": "a film ", "completion": "yes good"},
        {"image": "0.png", "prompt": "a good good good film ", "completion": "no"},
    ] * 8
    processor = save_llava_processor(tmp_path / "processor")
    file = file_of(rows, tmp_path, tokenizer=processor, max_length=32)
    arguments = {"remove_unused_columns": False}
    spec = replace(
        build_tiny_spec({}, training_arguments=arguments),
        model=tiny_vision_model("llava", image_token_index=11),
        data=DataSpec(file=file),
    )
    measured = measured_trial(spec, tmp_path).measurements
    assert measured["image_tokens_per_sample"] == 16
    assert (measured["longest_row_tokens"], measured["mean_row_tokens"]) == (23, 22)
    assert measured["real_tokens_per_second"] <= measured["tokens_per_second"]
