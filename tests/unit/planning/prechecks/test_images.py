"""Mistakes about random images that the text of a configuration shows before the first trial."""

from pathlib import Path

import pytest

from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan
from orchestrator.planning.prechecks.mistakes import check_files
from orchestrator.planning.problems import ConfigError
from tests.support.config_files import config_of

SHIPPED = Path(__file__).parents[4] / "configs/vlm.yaml"
SMOLVLM = (
    "model: {task: image-text-to-text, architecture: smolvlm, config: {scale_factor: 3, "
    "vision_config: {image_size: 384, patch_size: 14}}}\n"
)


def synthetic(**fields: int) -> str:
    keys = ", ".join(f"{name}: {value}" for name, value in fields.items())
    return f"data: {{synthetic: {{{keys}}}}}\n"


def problem_of(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as error:
        check_files(config_of(folder, text))
    return str(error.value)


def test_shipped_vision_configuration_has_no_mistake():
    check_files(load_config(SHIPPED))


def test_images_in_a_file_need_a_column_and_a_processor(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"text": "a"}\n')
    text = SMOLVLM + "data: {file: {path: rows.jsonl}}\n"
    problems = problem_of(tmp_path, text)
    assert "needs a column images; the file has text" in problems
    assert "needs the folder of the model's processor in tokenizer" in problems


def test_trials_on_images_in_a_file_keep_all_columns(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"text": "a", "image": "0.png"}\n')
    text = SMOLVLM + "data: {file: {path: rows.jsonl, tokenizer: ./processor}}\n"
    (trial, *_) = plan(config_of(tmp_path, text)).trials
    assert trial.settings.training_arguments["remove_unused_columns"] is False


CLASSIFIER = "model: {task: image-classification, architecture: %s}\n"
LLAMA = "model: {task: causal-lm, architecture: llama}\n"
MLLAMA = "model: {task: image-text-to-text, architecture: mllama}\n"
SMALL = SMOLVLM + synthetic(sequence_length=80)
LARGE = SMOLVLM + synthetic(sequence_length=86, image_size=768)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (MLLAMA, "model.architecture: random images cannot be made for mllama"),
        (SMALL, "is 80 tokens, and 1 × 84 are of images: give 86 or more"),
        (LARGE, "1 × 418 are of images"),
        (LLAMA + synthetic(image_size=64), "image_size: is for the task"),
        (LLAMA + synthetic(images=2), "images: is for the task"),
        (CLASSIFIER % "vit" + synthetic(image_size=64), "takes images of 224 pixels; change model"),
        (CLASSIFIER % "perceiver", "random images for perceiver are not known: it takes inputs"),
        (CLASSIFIER % "resnet" + synthetic(images=2), "images: is for the task image-text-to-text"),
    ],
)
def test_random_images_that_the_model_cannot_take_are_refused(text, reason, tmp_path):
    assert reason in problem_of(tmp_path, text)


def test_sample_with_room_for_its_images_has_no_problem(tmp_path):
    check_files(config_of(tmp_path, SMOLVLM + synthetic(sequence_length=86)))
