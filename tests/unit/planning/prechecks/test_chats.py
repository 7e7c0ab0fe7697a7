"""Chats that no trial can read are named by file, row and cause before anything runs."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.data_lines import chat_fault
from jobs.spec import DatasetFile, ModelSpec
from orchestrator.planning.prechecks.data_columns import data_problems
from orchestrator.planning.prechecks.model_configuration import ModelConfiguration

CHAT = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
SHAREGPT = [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]
MODEL = ModelSpec(task="causal-lm", architecture="gpt2")


def problems(path, task="causal-lm", **columns):
    """The sentences about a file of chats."""
    file_format = {".jsonl": "json", ".json": "json", ".parquet": "parquet"}[path.suffix]
    file = DatasetFile(path=str(path), format=file_format, tokenizer="Qwen/x", columns=columns)
    found = data_problems(file, task, ModelConfiguration.of(MODEL))
    return [message for _, message in found]


@pytest.mark.parametrize(
    ("chat", "said"),
    [
        ([], "no messages"),
        (SHAREGPT, "ShareGPT"),
        (["a"], "message 1 that is a text"),
        ([*CHAT, {"role": "user", "text": "c"}], "message 3 with neither content nor tool_calls"),
        ([{"role": "user", "content": 7}], "whose content is a number"),
    ],
)
@pytest.mark.parametrize("kind", ["jsonl", "json", "parquet"])
def test_chat_that_cannot_be_read_is_named_by_its_row(chat, said, kind, tmp_path):
    if (kind, chat) == ("parquet", ["a"]):
        pytest.skip("a Parquet column has one type")
    path = tmp_path / f"chats.{kind}"
    chats = [chat if n == 6 and kind != "parquet" else CHAT for n in range(9)]
    rows = [{"talk": own} for own in (chats if kind != "parquet" else [chat] * 9)]
    match kind:
        case "jsonl":
            path.write_text("\n".join(map(json.dumps, rows)))
        case "json":
            path.write_text(json.dumps(rows))
        case "parquet":
            pq.write_table(pa.Table.from_pylist(rows), path)
    [message] = problems(path, messages="talk")
    assert said in message
    place = {"jsonl": "line 7", "json": "row 7", "parquet": "row 1"}[kind]
    assert f"{path}, {place}" in message


@pytest.mark.parametrize("task", ["causal-lm", "masked-lm"])
def test_of_texts_beside_a_chat_the_one_that_the_task_reads_is_checked(task, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"text": "a", "messages": []}))
    found = [message.endswith("has no messages") for message in problems(path, task)]
    assert found == ([True] if task == "causal-lm" else [])


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"conversations": SHAREGPT}, "from and value are ShareGPT's form"),
        ({"chat": CHAT}, "columns: {messages: chat}"),
        ({"instruction": "a", "output": "b"}, "columns: {prompt: instruction, completion: output}"),
        ({"instruction": "a", "input": "", "output": "b"}, "output}, which leaves input out"),
        ({"prompt": "a", "chosen": "b", "rejected": "c"}, "with loop: trl_dpo in axes"),
        ({"messages": json.dumps(CHAT)}, "texts instead of lists of messages"),
    ],
)
def test_column_of_another_name_is_answered_with_what_it_holds(row, said, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row))
    [message] = problems(path)
    assert said in message


def test_chat_with_a_call_of_a_tool_has_no_fault():
    assert chat_fault([{"role": "assistant", "tool_calls": []}]) == ""
    assert chat_fault("a text") == ""


@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_lists_of_words_with_a_label_each_are_no_chats(kind, tmp_path):
    table = pa.table({"words": [["ein", "Haus"], ["da"]], "tags": [[0, 1], [1]]})
    if kind == "json":
        (tmp_path / "rows").write_text("\n".join(map(json.dumps, table.to_pylist())))
    else:
        pq.write_table(table, tmp_path / "rows")
    columns = {"text": "words", "labels": "tags"}
    path = str(tmp_path / "rows")
    file = DatasetFile(path=path, format=kind, tokenizer="x/y", columns=columns)
    task = "token-classification"
    model = ModelConfiguration.of(ModelSpec(task=task, architecture="bert"))
    assert list(data_problems(file, task, model)) == []
