"""Whole trials on the rows that people have: chats, prompts, and names of classes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.record import Outcome, TrialRecord
from jobs.spec import DatasetFile, DataSpec, ModelSpec
from jobs.trial.run import run
from tests.conftest import build_tiny_spec
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
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    tokenizer = save_word_tokenizer(folder / "tokenizer", chat_template=CHAT_TEMPLATE)
    file = DatasetFile(path=str(path), format="json", tokenizer=tokenizer, max_length=16)
    spec = build_tiny_spec(choices, inspect=False)
    spec = replace(spec, data=DataSpec(file=file), model=model or spec.model)
    return run(spec, lambda phase: None, scratch=folder)


@pytest.mark.parametrize(
    ("rows", "loop"), [(CHATS, "trainer"), (PROMPTS, "accelerate")], ids=["chats", "prompts"]
)
def test_run_trains_on_chats_and_prompts(
    rows: Sequence[Mapping[str, Any]], loop: str, tmp_path: Path
) -> None:
    record = train(rows, tmp_path, MODEL, loop=loop, accumulation=2)
    assert record.outcome is Outcome.OK, record.reason
    assert record.measurements["longest_row_tokens"] > record.measurements["mean_row_tokens"]
    assert record.flags == ()


def test_run_on_names_of_classes_has_an_output_for_each(tmp_path: Path) -> None:
    record = train(REVIEWS, tmp_path)
    assert record.outcome is Outcome.OK, record.reason
    # Random weights are about as sure of each of three classes: ln 3 = 1.10, and ln 2 = 0.69.
    assert record.steps["loss"][0] == pytest.approx(1.10, abs=0.2)


def test_run_on_other_columns_fails_in_a_sentence(tmp_path: Path) -> None:
    record = train([{"conversations": "x", "id": 1}] * 4, tmp_path, MODEL)
    assert (record.outcome, record.phase) == (Outcome.FAILED, "data")
    assert "has the columns conversations, id, and causal-lm trains on" in record.reason


def test_prompts_that_leave_no_room_for_an_answer_do_not_spoil_the_losses(
    tmp_path: Path,
) -> None:
    long = {"prompt": "very " * 40, "completion": "yes"}
    with pytest.warns(UserWarning, match="4 of 16 rows .* are left out"):
        record = train([long, *PROMPTS[:3]] * 4, tmp_path, MODEL, micro_batch=1)
    assert record.outcome is Outcome.OK, record.reason
    assert record.flags == ()
    assert all(loss > 0 for loss in record.steps["loss"])
