"""The user's own files as batches: texts, chats, prompts, words, token ids; or a refusal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import pytest

from jobs.spec import DatasetFile, DataSpec, Task
from jobs.trial.data import IGNORED, load
from tests.support.json_rows import file_of
from tests.support.word_tokenizer import CHAT_TEMPLATE, WORDS, save_word_tokenizer

CONFIG: Any = SimpleNamespace(vocab_size=32, num_labels=2, pad_token_id=0)
NUMBER = {word: number for number, word in enumerate(WORDS)}
CHAT = [
    {"role": "user", "content": "good film"},
    {"role": "assistant", "content": "yes"},
]
LONGER_CHAT = [{"role": "system", "content": "very good", "name": None}, *CHAT]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_word_tokenizer(tmp_path_factory.mktemp("words"))


@pytest.fixture(scope="module")
def chat_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_word_tokenizer(tmp_path_factory.mktemp("chat"), chat_template=CHAT_TEMPLATE)


Loader = Callable[..., Any]


@pytest.fixture
def rows_of(tmp_path: Path) -> Loader:
    """Loads rows as a file of JSON lines: the dataset and its collator."""

    def loaded(rows: Sequence[dict[str, Any]], task: Task, **fields: Any) -> Any:
        data = DataSpec(file=file_of(rows, tmp_path, **fields))
        return load(data, task, CONFIG, samples=None, seed=0)

    return loaded


def ids(text: str) -> list[int]:
    return [NUMBER[word] for word in text.split()]


def batch_of(loaded: Any) -> dict[str, list[Any]]:
    """All rows as one batch."""
    dataset, collate = loaded
    batch = collate([dataset[index] for index in range(len(dataset))])
    return {name: tensor.tolist() for name, tensor in batch.items()}


def test_load_of_chats_uses_the_chat_template(rows_of: Loader, chat_tokenizer: str) -> None:
    rows = [{"messages": CHAT}, {"messages": LONGER_CHAT, "id": "x"}]
    batch = batch_of(rows_of(rows, "causal-lm", tokenizer=chat_tokenizer))
    shorter = ids("user: good film [END] assistant: yes [END]")
    longer = ids("system: very good [END]") + shorter
    padding = len(longer) - len(shorter)
    assert batch["input_ids"] == [shorter + [0] * padding, longer]
    # The end of a message is learned, padding is not.
    assert batch["labels"] == [shorter + [IGNORED] * padding, longer]


def test_load_of_chats_without_a_template_says_what_to_do(rows_of: Loader, tokenizer: str) -> None:
    with pytest.raises(ValueError, match="has no chat template, which rows of messages need: name"):
        rows_of([{"messages": CHAT}], "causal-lm", tokenizer=tokenizer)


def test_load_of_prompts_masks_the_prompt(rows_of: Loader, tokenizer: str) -> None:
    rows = [
        {"prompt": "a very good film", "completion": "yes"},
        {"prompt": "bad", "completion": "no"},
    ]
    batch = batch_of(rows_of(rows, "causal-lm", tokenizer=tokenizer))
    assert batch["input_ids"][0] == ids("a very good film yes [END]")
    assert batch["labels"][0] == [IGNORED] * 4 + ids("yes [END]")
    assert batch["labels"][1] == [IGNORED, *ids("no [END]"), *[IGNORED] * 3]
    assert batch["attention_mask"][1] == [1, 1, 1, 0, 0, 0]


def test_load_of_prompts_as_chats_masks_up_to_the_answer(
    rows_of: Loader, chat_tokenizer: str
) -> None:
    rows = [{"prompt": CHAT[:1], "completion": CHAT[1:]}]
    batch = batch_of(rows_of(rows, "causal-lm", tokenizer=chat_tokenizer))
    assert batch["input_ids"][0] == ids("user: good film [END] assistant: yes [END]")
    assert batch["labels"][0] == [IGNORED] * 5 + ids("yes [END]")


def test_load_of_long_prompts_cuts_to_the_maximum(rows_of: Loader, tokenizer: str) -> None:
    rows = [{"prompt": "a very good film", "completion": "yes"}]
    batch = batch_of(rows_of(rows, "causal-lm", tokenizer=tokenizer, max_length=5))
    assert batch["labels"][0] == [IGNORED] * 4 + ids("yes")


def test_load_of_prompts_for_an_encoder_decoder(rows_of: Loader, tokenizer: str) -> None:
    rows = [{"prompt": "good film", "completion": "yes"}]
    batch = batch_of(rows_of(rows, "seq2seq-lm", tokenizer=tokenizer))
    assert (batch["input_ids"], batch["labels"]) == ([ids("good film")], [ids("yes")])


@pytest.mark.parametrize("labels", [("pos", "neg"), (True, False)])
def test_load_maps_names_of_classes_in_sorted_order(
    labels: tuple[Any, Any], rows_of: Loader, tokenizer: str
) -> None:
    rows = [{"text": "good", "label": labels[0]}, {"text": "bad", "label": labels[1]}]
    dataset, _ = rows_of(rows, "sequence-classification", tokenizer=tokenizer)
    assert dataset["labels"][:] == [1, 0]
    assert dataset.features["labels"].names == [str(label) for label in sorted(labels)]


def test_load_gives_a_words_label_to_its_first_token(rows_of: Loader, tokenizer: str) -> None:
    columns = {"text": "tokens", "labels": "ner_tags"}
    rows = [{"tokens": ["good", "film"], "ner_tags": ["O", "B-WORK"]}]
    batch = batch_of(rows_of(rows, "token-classification", tokenizer=tokenizer, columns=columns))
    assert (batch["input_ids"], batch["labels"]) == ([ids("good film")], [[1, 0]])


def test_load_pads_token_ids_that_came_without_a_tokenizer(rows_of: Loader) -> None:
    rows = [{"input_ids": [5, 6, 7], "source": "web"}, {"input_ids": [8, 9], "source": "book"}]
    batch = batch_of(rows_of(rows, "causal-lm"))
    assert batch["input_ids"] == [[5, 6, 7], [8, 9, 0]]
    assert batch["labels"] == [[5, 6, 7], [8, 9, IGNORED]]
    assert batch["attention_mask"] == [[1, 1, 1], [1, 1, 0]]


def test_load_of_equally_long_token_ids_needs_no_collator(rows_of: Loader) -> None:
    dataset, collate = rows_of([{"input_ids": [5, 6], "labels": [5, 6]}] * 3, "causal-lm")
    assert collate is None
    assert dataset[0]["input_ids"].tolist() == [5, 6]


def test_load_pads_with_the_end_where_a_tokenizer_has_no_padding(
    rows_of: Loader, tmp_path: Path
) -> None:
    folder = save_word_tokenizer(tmp_path / "no_padding", pad_token=None)
    rows = [{"text": "a bad film"}, {"text": "very bad"}]
    batch = batch_of(rows_of(rows, "causal-lm", tokenizer=folder))
    assert batch["input_ids"][1] == ids("very bad [END]")
    assert batch["labels"][1] == [*ids("very bad"), IGNORED]


REFUSED = [
    (
        [{"conversations": [], "id": 1}],
        "causal-lm",
        "has the columns conversations, id, and causal-lm trains on input_ids, messages, prompt "
        "with completion, or text: name yours in data.file.columns",
    ),
    (
        [{"messages": CHAT}],
        "sequence-classification",
        "has the columns messages, and sequence-classification trains on input_ids with labels, "
        "or text with labels: name yours",
    ),
    ([{"prompt": "a", "chosen": "b"}], "causal-lm", "has the columns prompt, chosen, and"),
    ([{"input_ids": [1, 2]}], "masked-lm", "trains on input_ids with labels, or text: name"),
    ([{"text": None}, {"text": "a"}], "causal-lm", "has None where its text should be"),
    ([{"text": 3}], "causal-lm", "has 3 where its text should be"),
    (
        [{"text": "a", "label": "x"}, {"text": "b", "label": None}],
        "sequence-classification",
        "row 1 of .* has no label",
    ),
    (
        [{"prompt": "a", "completion": CHAT}],
        "causal-lm",
        "must both be texts, or both lists of messages",
    ),
    (
        [{"messages": [{"from": "human", "value": "good"}]}],
        "causal-lm",
        "must be lists of mappings with role and content",
    ),
    (
        [{"text": ["good", "film"], "labels": [1]}],
        "token-classification",
        "a row of .* has 2 words and 1 labels",
    ),
]


@pytest.mark.parametrize(("rows", "task", "sentence"), REFUSED)
def test_load_refuses_other_rows_in_a_sentence(
    rows_of: Loader, chat_tokenizer: str, rows: Any, task: Task, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        rows_of(rows, task, tokenizer=chat_tokenizer)


@pytest.mark.parametrize("kind", ["parquet", "csv", "arrow", "disk"])
def test_load_reads_every_format(kind: Any, tokenizer: str, tmp_path: Path) -> None:
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


def test_load_of_texts_without_a_tokenizer_says_so(rows_of: Loader) -> None:
    with pytest.raises(ValueError, match="has text, which needs a tokenizer: name one in data"):
        rows_of([{"text": "a"}], "causal-lm")
