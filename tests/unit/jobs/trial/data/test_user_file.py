"""The user's own files as batches: texts, chats, prompts, words, token ids; or a refusal."""

import json
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import pytest

from jobs.data_files import problem_of_path
from jobs.spec import DatasetFile, DataSpec, Task
from jobs.trial.data import IGNORED, load
from jobs.trial.data.tokenizing import loaded_tokenizer, rows_to_tokens
from jobs.trial.data.user_file import named_rows, rows_of_file
from tests.support.commands import ROOT
from tests.support.json_rows import file_of
from tests.support.word_tokenizer import CHAT_TEMPLATE, WORDS, save_word_tokenizer

CONFIG: Any = SimpleNamespace(vocab_size=32, num_labels=2, pad_token_id=0)
NUMBER = {word: number for number, word in enumerate(WORDS)}
CHAT = [{"role": "user", "content": "good film"}, {"role": "assistant", "content": "yes"}]
LONGER_CHAT = [{"role": "system", "content": "very good", "name": None}, *CHAT]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_word_tokenizer(tmp_path_factory.mktemp("words"), chat_template=CHAT_TEMPLATE)


Loader = Callable[..., Any]


@pytest.fixture
def rows_of(tmp_path: Path) -> Loader:
    """Loads rows as a file of JSON lines: the dataset and its collator."""

    def loaded(rows: Sequence[dict[str, Any]], task: Task, **fields: Any) -> Any:
        data = DataSpec(file=file_of(rows, tmp_path, **fields))
        return load(data, task, CONFIG, samples=None, seed=0)

    return loaded


def ids(text: str) -> list[int]:
    """The token ids of words; ``_`` is a label that the loss ignores."""
    return [IGNORED if word == "_" else NUMBER[word] for word in text.split()]


def batch_of(loaded: Any) -> dict[str, list[Any]]:
    dataset, collate = loaded
    batch = collate([dataset[index] for index in range(len(dataset))])
    return {name: tensor.tolist() for name, tensor in batch.items()}


def test_load_of_chats_uses_the_chat_template(rows_of, tokenizer):
    rows = [{"messages": CHAT}, {"messages": LONGER_CHAT, "id": "x"}]
    batch = batch_of(rows_of(rows, "causal-lm", tokenizer=tokenizer))
    shorter = "user: good film [END] assistant: yes [END]"
    longer = f"system: very good [END] {shorter}"
    assert batch["input_ids"] == [ids(f"{shorter} [PAD] [PAD] [PAD] [PAD]"), ids(longer)]
    # The end of a message is learned, padding is not.
    assert batch["labels"] == [ids(f"{shorter} _ _ _ _"), ids(longer)]
    assert batch["attention_mask"] == [[1] * 7 + [0] * 4, [1] * 11]


def parts_of(chat):
    """The chat, with each content as a list of two parts."""
    split = [(own["content"][:3], own["content"][3:]) for own in chat]
    parts = [[{"type": "text", "text": text} for text in pair] for pair in split]
    return [{**own, "content": part} for own, part in zip(chat, parts, strict=True)]


@pytest.mark.parametrize("is_mixed", [False, True])
def test_load_joins_the_parts_of_a_content(rows_of, tokenizer, is_mixed):
    rows = [{"messages": CHAT if is_mixed else parts_of(CHAT)}, {"messages": parts_of(CHAT)}]
    batch = batch_of(rows_of(rows, "causal-lm", tokenizer=tokenizer))
    assert batch["input_ids"] == [ids("user: good film [END] assistant: yes [END]")] * 2


@pytest.mark.parametrize(
    ("prompt", "completion", "tokens", "labels"),
    [
        ("a very good film", "yes", "a very good film yes [END]", "_ _ _ _ yes [END]"),
        ("the film was a very good", "yes", "the film was a very good yes", "_ _ _ _ _ _ yes"),
        (CHAT[:1], CHAT[1:], "user: good film [END] assistant: yes [END]", "_ _ _ _ _ yes [END]"),
    ],
    ids=["texts", "cut_to_the_maximum", "chats"],
)
def test_load_of_prompts_masks_the_prompt(rows_of, tokenizer, prompt, completion, tokens, labels):
    rows = [{"prompt": prompt, "completion": completion}]
    batch = batch_of(rows_of(rows, "causal-lm", tokenizer=tokenizer, max_length=7))
    assert (batch["input_ids"], batch["labels"]) == ([ids(tokens)], [ids(labels)])


def test_load_of_prompts_for_an_encoder_decoder(rows_of, tokenizer):
    rows = [{"prompt": "good film", "completion": "yes"}]
    batch = batch_of(rows_of(rows, "seq2seq-lm", tokenizer=tokenizer))
    assert (batch["input_ids"], batch["labels"]) == ([ids("good film")], [ids("yes")])


@pytest.mark.parametrize("labels", [("pos", "neg"), (True, False)])
def test_load_maps_names_of_classes_in_sorted_order(labels, rows_of, tokenizer):
    rows = [{"text": "good", "label": labels[0]}, {"text": "bad", "label": labels[1]}]
    dataset, _ = rows_of(rows, "sequence-classification", tokenizer=tokenizer)
    assert dataset["labels"][:] == [1, 0]
    assert dataset.features["labels"].names == [str(label) for label in sorted(labels)]


def test_load_gives_a_words_label_to_its_first_token(rows_of, tokenizer):
    columns = {"text": "tokens", "labels": "ner_tags"}
    rows = [{"tokens": ["good", "film"], "ner_tags": ["O", "B-WORK"]}]
    batch = batch_of(rows_of(rows, "token-classification", tokenizer=tokenizer, columns=columns))
    assert (batch["input_ids"], batch["labels"]) == ([ids("good film")], [[1, 0]])


def test_load_pads_token_ids_that_came_without_a_tokenizer(rows_of):
    rows = [{"input_ids": [5, 6, 7], "source": "web"}, {"input_ids": [8, 9], "source": "book"}]
    batch = batch_of(rows_of(rows, "causal-lm"))
    assert batch["input_ids"] == [[5, 6, 7], [8, 9, 0]]
    assert batch["labels"] == [[5, 6, 7], [8, 9, IGNORED]]
    assert batch["attention_mask"] == [[1, 1, 1], [1, 1, 0]]


def test_load_pads_with_the_end_if_there_is_no_padding(rows_of, tmp_path):
    folder = save_word_tokenizer(tmp_path / "no_padding", pad_token=None)
    rows = [{"text": "a bad film"}, {"text": "very bad"}]
    batch = batch_of(rows_of(rows, "causal-lm", tokenizer=folder))
    assert batch["input_ids"][1] == ids("very bad [END]")
    assert batch["labels"][1] == [*ids("very bad"), IGNORED]


REFUSED = (ROOT / "tests/golden/refused_rows.txt").read_text().splitlines()[1:]


@pytest.mark.parametrize("line", REFUSED)
def test_load_refuses_other_rows_in_a_sentence(rows_of, tokenizer, line):
    case, _, sentence = line.partition(" => ")
    task, _, rows = case.partition(": ")
    with pytest.raises(ValueError, match=sentence):
        rows_of(json.loads(rows), task, tokenizer=tokenizer)


@pytest.mark.parametrize("kind", ["parquet", "csv", "arrow", "disk"])
def test_load_reads_every_format(kind, tokenizer, tmp_path):
    dataset = datasets.Dataset.from_dict({"review": ["a film", "good"], "stars": [1, 0]})
    path = tmp_path / f"rows.{kind}"
    if kind in ("parquet", "csv"):
        getattr(dataset, f"to_{kind}")(path)
    else:
        dataset.save_to_disk(path)
    if kind == "arrow":
        (path,) = path.glob("*.arrow")
    columns = {"text": "review", "labels": "stars"}
    file = DatasetFile(path=str(path), format=kind, columns=columns, tokenizer=tokenizer)
    loaded, _ = load(DataSpec(file=file), "sequence-classification", CONFIG, samples=None, seed=0)
    assert loaded["input_ids"][:] == [ids("a film"), ids("good")]
    assert loaded["labels"][:] == [1, 0]


def test_load_needs_a_tokenizer_and_for_chats_a_template(rows_of, tmp_path):
    with pytest.raises(ValueError, match="has text, which needs a tokenizer: name one in data"):
        rows_of([{"text": "a"}], "causal-lm")
    plain = save_word_tokenizer(tmp_path / "no_template")
    with pytest.raises(ValueError, match="has no chat template, which rows of messages need: name"):
        rows_of([{"messages": CHAT}], "causal-lm", tokenizer=plain)


@pytest.mark.parametrize("kind", ["parquet", "json"])
@pytest.mark.parametrize("task", ["causal-lm", "image-text-to-text"])
def test_message_without_content_is_named_by_its_row(kind, task, tokenizer, tmp_path):
    silent = [*CHAT, {"role": "user", "value": "good"}]
    chats = [silent if number == 40 else CHAT for number in range(60)]
    rows = datasets.Dataset.from_list([{"messages": chat, "images": []} for chat in chats])
    getattr(rows, f"to_{kind}")(tmp_path / "rows")
    file = DatasetFile(path=str(tmp_path / "rows"), format=kind, tokenizer=tokenizer)
    with pytest.raises(ValueError, match=r"rows, row 41: .* a message 3 with neither content nor"):
        rows_of_file(file, task)


def test_cells_that_pandas_takes_for_no_value_are_texts(tmp_path):
    (tmp_path / "rows").write_text("text,label,size\nn/a,null,1\nNULL,nan,\nfilm,x,2.5\n")
    rows = named_rows(DatasetFile(path=str(tmp_path / "rows"), format="csv"))
    assert rows["text"][:] == ["n/a", "NULL", "film"]
    assert rows["labels"][:] == ["null", "nan", "x"]
    assert rows["size"][:] == [1.0, None, 2.5]


def test_chat_that_the_template_cannot_write_is_quoted(rows_of, tmp_path):
    template = "{{ raise_exception('cannot be') }}"
    name = save_word_tokenizer(tmp_path / "refuses", chat_template=template)
    with pytest.raises(ValueError, match=r"refuses cannot write the .*'good f.*: cannot be"):
        rows_of([{"messages": CHAT}], "causal-lm", tokenizer=name)


SYSTEM = "it belongs to the system"


@pytest.mark.parametrize("pattern", ["", "*", "*.csv", "**", "**/*.csv", "deep/*", "deep/in/*.csv"])
def test_link_into_the_system_is_found_behind_any_pattern(pattern, tmp_path):
    folder = tmp_path / "deep" / "in"
    folder.mkdir(parents=True)
    (folder / "a.csv").write_text("text,labels\na,0\n")
    (tmp_path / "deep" / "b.csv").write_text("text,labels\na,0\n")
    assert problem_of_path(str(tmp_path / pattern)) == ""
    (folder / "z.csv").symlink_to("/proc/self/environ")
    problem = problem_of_path(str(tmp_path / pattern))
    # A pattern of one level reaches no deeper file.
    assert problem.endswith(SYSTEM) or pattern == "*.csv"


def test_links_between_folders_are_not_followed_for_ever(tmp_path):
    (tmp_path / "self").symlink_to(tmp_path)
    (tmp_path / "root").symlink_to("/")
    assert problem_of_path(str(tmp_path / "**" / "**" / "*.json")) == ""


@pytest.mark.parametrize("pattern", ["", "*.json", "**/*.json"])
def test_pipe_is_found_in_a_folder(pattern, tmp_path):
    os.mkfifo(tmp_path / "x.json")
    assert "is no file but a pipe" in problem_of_path(str(tmp_path / pattern))


def test_disk_in_memory_holds_data():
    with tempfile.NamedTemporaryFile(dir="/dev/shm", suffix=".csv") as file:
        assert problem_of_path(file.name) == ""


@pytest.mark.parametrize("path", ["hf://datasets/a/b", "https://host/x", "zip://a::/proc/1/x"])
def test_address_is_no_path(path):
    assert problem_of_path(path).endswith("is not a path on this machine")


def test_trial_reads_nothing_of_the_system_behind_a_pattern(tmp_path):
    (tmp_path / "a.csv").write_text("text,labels\na,0\n")
    (tmp_path / "b.csv").symlink_to("/proc/self/environ")
    with pytest.raises(ValueError, match=SYSTEM) as error:
        named_rows(DatasetFile(path=str(tmp_path / "*.csv"), format="csv"))
    assert error.value.__context__ is None
    assert "PATH=" not in str(error.value)


def test_load_gives_the_template_the_tools_and_settings_of_each_row(tmp_path):
    template = (
        "{% for tool in tools or [] %}{{ tool.name }} {% endfor %}"
        "{% for call in messages[0].calls or [] %}{{ call | join(' ') }} {% endfor %}"
        "{% if slow %}very {% endif %}"
        "{% for message in messages %}{{ message.content }} {% endfor %}"
    )
    name = save_word_tokenizer(tmp_path / "words", chat_template=template)
    question = {"role": "user", "content": "film"}
    other = {**question, "calls": [{"bad": "1", "no": None}]}
    answer = [{"role": "assistant", "content": "yes"}]
    rows = [
        {"tools": [{"name": "good"}], "chat_template_kwargs": {"slow": True}},
        {"tools": None, "chat_template_kwargs": None},
    ]
    tokenizer = loaded_tokenizer(name)
    file = DatasetFile(path="x", format="json", tokenizer=name)
    columns = {key: [row[key] for row in rows] for key in rows[0]}
    read = rows_to_tokens(tokenizer, file, "causal-lm", "prompt")
    prompts = read({**columns, "prompt": [[question], [other]], "completion": [answer, answer]})
    assert prompts["input_ids"] == [ids("good very film yes"), ids("bad film yes")]
    read = rows_to_tokens(tokenizer, file, "causal-lm", "messages")
    chats = read({**columns, "tools": ['[{"name": "good"}]', None], "messages": [[question]] * 2})
    assert chats["input_ids"] == [ids("good very film"), ids("film")]


def test_load_refuses_a_second_text_that_is_none(rows_of, tokenizer):
    rows = [{"text": "good", "text_pair": "film", "label": 0}, {"text": "yes", "label": 1}]
    with pytest.raises(ValueError, match="None where its text_pair should be"):
        rows_of(rows, "sequence-classification", tokenizer=tokenizer)


@pytest.mark.parametrize(
    ("norm", "mask"), [("group", None), ("layer", [[1, 1, 1], [1, 0, 0]])], ids=["base", "large"]
)
def test_load_of_sounds_pads_them_and_masks_what_the_model_was_made_for(
    norm, mask, rows_of, tokenizer, monkeypatch
):
    monkeypatch.setattr(CONFIG, "model_type", "wav2vec2", raising=False)
    monkeypatch.setattr(CONFIG, "feat_extract_norm", norm, raising=False)
    rows = [
        {"input_values": [0.5, 0.25, 1.0], "labels": [3]},
        {"input_values": [0.5], "labels": [4, 5]},
    ]
    # A tokenizer, which pads token ids, has no part in it.
    batch = batch_of(rows_of(rows, "speech-ctc", tokenizer=tokenizer, max_tokens=1))
    assert batch["input_values"] == [[0.5, 0.25, 1.0], [0.5, 0.0, 0.0]]
    assert batch["labels"] == [[3], [4]]
    assert batch.get("attention_mask") == mask


def test_load_of_spectrograms_needs_no_mask_where_all_have_one_length(rows_of, monkeypatch):
    monkeypatch.setattr(CONFIG, "model_type", "whisper", raising=False)
    rows = [{"input_features": [[0.5, 0.25]], "labels": labels} for labels in ([3], [4, 5])]
    batch = batch_of(rows_of(rows, "speech-seq2seq"))
    assert batch["labels"] == [[3, IGNORED], [4, 5]]
    assert "attention_mask" not in batch
