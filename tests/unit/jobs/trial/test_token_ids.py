"""Models without an id for padding, which are usual among decoders, train as with padding."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from jobs.spec import DataSpec, ModelSpec, Task
from jobs.trial import assembly
from tests.conftest import build_tiny_spec
from tests.support.json_rows import file_of
from tests.support.tiny_decoders import LLAMA
from tests.support.word_tokenizer import WORDS, save_word_tokenizer

ROWS = [{"text": "good film the film was good a", "label": 1}, {"text": "bad film", "label": 0}] * 4


def assembled(task: Task, folder: Path, pad_token: str | None) -> tuple[Any, Any, Any]:
    """The rows of a trial on texts of unequal length, what makes batches of them, and its model."""
    tokenizer = save_word_tokenizer(folder / "tokenizer", pad_token=pad_token)
    config = {**LLAMA, "pad_token_id": None, "vocab_size": len(WORDS)}
    spec = replace(
        build_tiny_spec({"micro_batch": 4}),
        model=ModelSpec(task=task, architecture="llama", config=config),
        data=DataSpec(file=file_of(ROWS, folder, tokenizer=tokenizer)),
    )
    dataset, collate = assembly._dataset(spec, None, None)
    return dataset, collate, assembly._model(spec, dataset, None, torch.device("cpu"))


@pytest.mark.parametrize("pad_token", [None, "[PAD]"])
def test_classes_of_a_row_do_not_depend_on_its_padding(pad_token, tmp_path):
    rows, collate, model = assembled("sequence-classification", tmp_path, pad_token)
    model.eval()
    batch = collate([rows[index] for index in range(2)])
    batch.pop("labels")
    alone = collate([rows[1]])
    alone.pop("labels")
    assert batch["input_ids"].shape[1] > alone["input_ids"].shape[1]
    with torch.no_grad():
        assert torch.allclose(model(**batch).logits[1:], model(**alone).logits, atol=1e-5)
    assert model.config.pad_token_id == (2 if pad_token is None else 0)


def test_every_token_of_a_text_trains_its_embedding(tmp_path):
    # The end of a text also pads, and the text has it.
    *_, model = assembled("causal-lm", tmp_path, None)
    ids = torch.arange(len(WORDS))[None]
    model(input_ids=ids, labels=ids).loss.backward()
    gradients = model.get_input_embeddings().weight.grad
    assert (gradients.abs().sum(dim=1)[:-1] > 0).all()
