"""The user's own images with texts, through the processor of a local folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from jobs.spec import DataSpec
from jobs.trial import models
from jobs.trial.data import IGNORED, load, ragged_lengths
from tests.support.json_rows import file_of
from tests.support.vision_models import tiny_vision_model
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
    """Two images, and a processor."""
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


def test_prompts_are_read_by_the_processor_and_not_learnt(folder: Path) -> None:
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
    assert lengths is not None
    assert lengths.tokens.tolist() == [21, 20]


def test_chat_without_places_gets_its_images_in_the_first_message(folder: Path) -> None:
    dataset, collate = loaded(folder, [CHAT])
    assert dataset[0]["text"].startswith("user: <image> <image> a film [END]")
    batch = collate([dataset[0]])
    assert int((batch["input_ids"] == IMAGE).sum()) == 32
    assert batch["pixel_values"].shape == (2, 3, 32, 32)
    assert (batch["labels"][batch["input_ids"] == IMAGE] == IGNORED).all()


def test_folder_of_images_is_read_with_its_texts(folder: Path, tmp_path: Path) -> None:
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
        ({"image": "0.png", "messages": ["a"]}, {}, "lists of mappings with role and content"),
        ({**PROMPT, "completion": [{"role": "assistant"}]}, {}, "must both be texts"),
    ],
    ids=["too_long", "url", "columns", "no_processor", "no_messages", "text_and_chat"],
)
def test_rows_that_cannot_be_trained_on_are_refused(
    folder: Path, row: Mapping[str, Any], fields: Mapping[str, Any], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        loaded(folder, [row], **fields)
