"""Mistakes in files of answer pairs, found before the first trial."""

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.planning.prechecks.mistakes import check_files
from orchestrator.planning.problems import ConfigError
from tests.support.commands import ROOT
from tests.support.config_files import config_of
from tests.support.word_tokenizer import CHAT_TEMPLATE, save_word_tokenizer

PAIR = {"prompt": "was the film", "chosen": "good yes", "rejected": "bad"}
CHAT = {
    "chosen": [{"role": "user", "content": "a film"}, {"role": "assistant", "content": "yes"}],
    "rejected": [{"role": "user", "content": "a film"}, {"role": "assistant", "content": "no"}],
}
LONG = {**PAIR, "prompt": "was the film a very good film"}
MISTAKES = (ROOT / "tests/golden/mistakes_in_pairs.txt").read_text().splitlines()[1:]


def _notes(
    rows: list[Any], folder: Path, *, file: str = "", loop: str = "trl_dpo", limit: int = 6
) -> str:
    """The notes about a sweep on these rows. Raises ConfigError with its mistakes."""
    path = folder / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    tokenizer = save_word_tokenizer(folder / "tokenizer", chat_template=CHAT_TEMPLATE)
    data = f"{{path: {path}, tokenizer: {tokenizer}, max_length: {limit}{file}}}"
    config = config_of(folder, f"data: {{file: {data}}}\naxes: {{loop: {loop}}}\n")
    return "\n".join(check_files(config))


@pytest.mark.parametrize("rows", [[PAIR], [CHAT], [{**PAIR, "prompt": ""}]])
def test_pairs_without_mistakes_are_accepted(rows, tmp_path):
    assert _notes(rows * 3, tmp_path) == ""


@pytest.mark.parametrize("line", MISTAKES)
def test_mistake_in_pairs_is_named_before_the_first_trial(line, tmp_path):
    rows, _, message = line.partition(" => ")
    with pytest.raises(ConfigError) as error:
        _notes(json.loads(rows), tmp_path)
    assert message in str(error.value)


def test_pairs_of_which_some_prompts_are_too_long_give_a_note(tmp_path):
    note = _notes([PAIR, LONG, PAIR], tmp_path)
    assert "1 of the first 3 prompts has as many or more (row 2 first)" in note
    chats = [{**CHAT, "prompt": [{"role": "user", "content": "very " * 9}]}, {**CHAT}]
    chats[1]["prompt"] = [{"role": "user", "content": "film"}]
    assert "1 of the first 2 prompts has" in _notes(chats, tmp_path)


@pytest.mark.parametrize("loop", ["trainer", "trl_sft"])
def test_prompts_that_leave_no_room_for_a_completion_give_a_note(loop, tmp_path):
    texts = [{"prompt": "a film " * count, "completion": "yes"} for count in (2, 3, 4, 1)]
    note = _notes(texts, tmp_path, loop=loop)
    assert "2 of the first 4 prompts have as many or more (row 2 first)" in note
    # The template adds a role and an end to each message, and the role of the answer.
    chats = [
        {
            "prompt": [{"role": "user", "content": "very " * count}],
            "completion": [{"role": "assistant", "content": "no"}],
        }
        for count in (2, 3)
    ]
    assert "1 of the first 2 prompts has as many or more (row 2" in _notes(
        chats, tmp_path, loop=loop
    )
    if loop == "trainer":
        with pytest.raises(ConfigError, match=r"max_length: is 3 tokens, and 2 of the first 2"):
            _notes(chats, tmp_path, loop=loop, limit=3)
    messages = [{**row, "messages": row["prompt"]} for row in chats]
    assert _notes(messages, tmp_path, loop="trainer") == ""


def test_pairs_whose_common_prompt_has_no_end_give_a_note(tmp_path):
    note = _notes([{"chosen": "the film", "rejected": "the film"}], tmp_path)
    assert "row 1 has an answer with which the other begins" in note


def test_columns_of_the_users_own_names_are_read(tmp_path):
    rows = [{"question": "was the film", "good": "yes", "bad": "no"}]
    names = ", columns: {prompt: question, chosen: good, rejected: bad}"
    assert _notes(rows, tmp_path, file=names) == ""
    with pytest.raises(ConfigError, match='no column "worse"'):
        _notes(rows, tmp_path, file=names.replace("bad", "worse"))


def test_a_file_that_another_loop_reads_too_is_checked_for_both(tmp_path):
    with pytest.raises(ConfigError, match="needs a column text"):
        _notes([{"chosen": "yes", "rejected": "no"}], tmp_path, loop="[trl_dpo, trainer]")
