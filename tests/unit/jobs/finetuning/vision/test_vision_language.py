"""Images with texts: the user's own through a processor, and whole trials of a tiny model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from jobs.record import TrialRecord
from jobs.spec import DataSpec, TrialSpec
from jobs.trial import models
from jobs.trial.data import IGNORED, load, ragged_lengths
from jobs.trial.requirements import unmet_reason
from tests.conftest import build_tiny_spec
from tests.support.json_rows import file_of
from tests.support.one_trial import measured as measured_trial
from tests.support.vision_models import tiny_images, tiny_vision_model
from tests.support.vision_processors import llava_processor, picture, save_llava_processor

IMAGE = 11
"""The id of the image token."""
PROMPT = {"image": "0.png", "prompt": "a film ", "completion": "yes good"}
CHAT = {
    "image": ["0.png", "1.png"],
    "messages": [{"role": "user", "content": "a film"}, {"role": "assistant", "content": "yes"}],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    picture(32, 32).save(folder / "0.png")
    picture(48, 64).save(folder / "1.png")
    save_llava_processor(folder / "processor")
    return folder


def loaded(folder: Path, rows: Sequence[Mapping[str, Any]], **fields: Any) -> tuple[Any, Any]:
    options = {"max_length": 64, "tokenizer": str(folder / "processor"), **fields}
    file = file_of(rows, folder, **options)
    config = models.architecture_config(tiny_vision_model("llava", image_token_index=IMAGE))
    return load(DataSpec(file=file), "image-text-to-text", config, samples=None, seed=0)


def test_prompts_are_read_by_the_processor_and_not_learnt(folder):
    longer = {**PROMPT, "image": "1.png", "completion": "no"}
    dataset, collate = loaded(folder, [PROMPT, longer])
    batch = collate([dataset[0], dataset[1]])
    expected = llava_processor()(
        text=["<image>a film yes good[END]", "<image>a film no[END]"],
        images=[[picture(32, 32)], [picture(48, 64)]],
        padding=True,
        return_tensors="pt",
    )
    assert {*batch} == {*expected, "labels"}
    assert next(iter(batch)) == "input_ids"
    assert torch.equal(batch["pixel_values"], expected["pixel_values"])
    # Sixteen tokens of the image and two words of the prompt come before what is learnt.
    assert (batch["labels"][:, :18] == IGNORED).all()
    learnt = [row[row != IGNORED].tolist() for row in batch["labels"]]
    assert [len(row) for row in learnt] == [3, 2]
    lengths = ragged_lengths(dataset)
    assert lengths.tokens.tolist() == [21, 20]


def test_chat_without_places_gets_its_images_in_the_first_message(folder):
    dataset, collate = loaded(folder, [CHAT])
    assert dataset[0]["text"].startswith("user: <image> <image> a film [END]")
    batch = collate([dataset[0]])
    assert int((batch["input_ids"] == IMAGE).sum()) == 32
    assert batch["pixel_values"].shape == (2, 3, 32, 32)
    assert (batch["labels"][batch["input_ids"] == IMAGE] == IGNORED).all()


def test_folder_of_images_is_read_with_its_texts(folder, tmp_path):
    picture(32, 32).save(tmp_path / "0.png")
    (tmp_path / "metadata.jsonl").write_text('{"file_name": "0.png", "text": "a good film"}\n')
    dataset, collate = loaded(folder, [], path=str(tmp_path), format="imagefolder")
    batch = collate([dataset[0]])
    assert int((batch["input_ids"] == IMAGE).sum()) == 16
    assert (batch["labels"][0, 16:] != IGNORED).all()


@pytest.mark.parametrize(
    ("row", "fields", "reason"),
    [
        (PROMPT, {"max_length": 10}, "row 0 of .* has 16 tokens of images, which max_length of 10"),
        ({**PROMPT, "image": "http://x/0.png"}, {}, "names an image by a URL"),
        ({"image": "0.png", "caption": "a"}, {}, "trains on messages with images"),
        (PROMPT, {"tokenizer": None}, "which needs a tokenizer"),
        ({"image": "0.png", "messages": ["a"]}, {}, "row 1: .* a text, not a mapping"),
        ({**PROMPT, "completion": [{"role": "user", "content": ""}]}, {}, "must both be texts"),
    ],
    ids=["too_long", "url", "columns", "no_processor", "no_messages", "text_and_chat"],
)
def test_rows_that_cannot_be_trained_on_are_refused(folder, row, fields, reason):
    with pytest.raises(ValueError, match=reason):
        loaded(folder, [row], **fields)


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
    records = {}

    def run_once(family: str = "qwen2_5_vl", **choices: Any) -> TrialRecord:
        spec = vision_spec(family, **choices)
        if spec.trial_id not in records:
            records[spec.trial_id] = measured_trial(spec, tmp_path_factory.mktemp("trial"))
        return records[spec.trial_id]

    return run_once


def test_trial_says_how_many_tokens_are_images(trial):
    measured = trial().measurements
    assert measured["image_tokens_per_sample"] == 4
    # No position is padding, so all tokens are real.
    assert measured["real_tokens_per_second"] == measured["tokens_per_second"]
    assert measured["tokens_per_second"] == pytest.approx(40 * measured["samples_per_second"])
    assert measured["vision_parameters_trainable"] > 0
    assert measured["parameters_trainable"] == measured["parameters_total"]


def test_frozen_vision_tower_trains_all_but_the_tower(trial):
    plain, frozen = trial().measurements, trial(vision="frozen").measurements
    assert frozen["vision_parameters_trainable"] == 0
    left_out = plain["parameters_trainable"] - frozen["parameters_trainable"]
    assert left_out == plain["vision_parameters_trainable"]
    assert frozen["optimizer_state_bytes"] < plain["optimizer_state_bytes"]
    assert frozen["peak_allocated_bytes"] < plain["peak_allocated_bytes"]


@pytest.mark.parametrize("adapter", ["lora_r8", "lora_r8_all_linear"])
def test_adapter_trains_the_language_model_alone(trial, adapter):
    # CLIP's layers have the names of Llama's: q_proj, v_proj.
    record = trial("llava", adapter=adapter)
    assert record.measurements["vision_parameters_trainable"] == 0
    assert record.measurements["parameters_trainable"] > 0


def test_adapter_by_a_regular_expression_reaches_the_tower(trial):
    record = trial("llava", adapter='lora(r=4,target_modules="model.vision_tower.*q_proj")')
    measured = record.measurements
    assert measured["vision_parameters_trainable"] == measured["parameters_trainable"] > 0


def test_quantized_base_is_the_language_models(trial):
    record = trial(base="torchao_int8", adapter="lora_r8")
    measured = record.measurements
    assert measured["base_quantized_share"] == 1
    assert record.flags == ()
    # Projector and tower keep 16 bits, and so do the embeddings.
    assert measured["weights_16bit_bytes"] > 0


def test_chunked_loss_of_images_with_texts_equals_the_plain_one(trial):
    plain, chunked = trial(accumulation=2), trial(accumulation=2, loss="chunked")
    assert chunked.measurements["loss_implementation"] == "chunked"
    assert chunked.steps["loss"] == pytest.approx(plain.steps["loss"], rel=1e-4)


@pytest.mark.parametrize(
    ("choices", "requirement", "reason"),
    [
        ({"batching": "packed"}, "task:causal-lm", "cuts rows into blocks of tokens"),
        ({"batching": "padding_free"}, "task:causal-lm", "makes one sequence of all rows"),
        ({"attention": "varlen"}, "task:causal-lm", "attention in a vision tower is not"),
        ({"loop": "trl_sft"}, "task:causal-lm", "models of texts only"),
        ({"loss": "chunked"}, "task:causal-lm", ""),
        ({"vision": "frozen"}, "task:image-text-to-text", ""),
        ({"adapter": "prompt_tuning(num_virtual_tokens=4)"}, "text_task", "tokens would shift"),
    ],
)
def test_technique_without_images_is_unsupported(choices, requirement, reason):
    spec = vision_spec(**choices)
    assert requirement in spec.settings.requires
    unmet = unmet_reason(requirement, spec)
    assert reason in unmet
    assert bool(unmet) == bool(reason)


def test_trial_on_the_users_images_measures_the_worst_batch(folder, tmp_path):
    rows = [PROMPT, {**PROMPT, "prompt": "a good good good film ", "completion": "no"}] * 8
    file = file_of(rows, folder, tokenizer=str(folder / "processor"), max_length=32)
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
