"""Whole trials on the rows that people have: chats, prompts, and names of classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.record import TrialRecord
from jobs.spec import DataSpec, ModelSpec
from tests.conftest import build_tiny_spec
from tests.support.json_rows import file_of
from tests.support.one_trial import measured
from tests.support.tiny_decoders import MODEL
from tests.support.word_tokenizer import CHAT_TEMPLATE, save_word_tokenizer

CHATS = [
    {"messages": [{"role": "user", "content": "good film"}]},
    {"messages": [{"role": "user", "content": "a very very bad film"}]},
] * 8
PROMPTS = [
    {"prompt": "was the film good", "completion": "yes"},
    {"prompt": "bad", "completion": "no"},
] * 8
REVIEWS = [
    {"text": "good", "label": "pos"},
    {"text": "very bad", "label": "neg"},
    {"text": "a film", "label": "neutral"},
] * 8


def train(
    rows: Sequence[Mapping[str, Any]], folder: Path, model: ModelSpec | None = None, **choices: Any
) -> TrialRecord:
    """A trial on rows in a file of JSON lines; ``model`` None: the tiny BERT that classifies."""
    tokenizer = save_word_tokenizer(folder / "tokenizer", chat_template=CHAT_TEMPLATE)
    file = file_of(rows, folder, tokenizer=tokenizer, max_length=16)
    spec = build_tiny_spec(choices, inspect=False)
    spec = replace(spec, data=DataSpec(file=file), model=model or spec.model)
    return measured(spec, folder)


@pytest.mark.parametrize(
    ("rows", "loop"), [(CHATS, "trainer"), (PROMPTS, "accelerate")], ids=["chats", "prompts"]
)
def test_run_trains_on_chats_and_prompts(
    rows: Sequence[Mapping[str, Any]], loop: str, tmp_path: Path
) -> None:
    record = train(rows, tmp_path, MODEL, loop=loop, accumulation=2)
    assert record.measurements["longest_row_tokens"] > record.measurements["mean_row_tokens"]
    assert record.flags == ()


def test_run_on_names_of_classes_has_an_output_for_each(tmp_path: Path) -> None:
    record = train(REVIEWS, tmp_path)
    # Random weights are about as sure of each of three classes: ln 3 = 1.10, and ln 2 = 0.69.
    assert record.steps["loss"][0] == pytest.approx(1.10, abs=0.2)
