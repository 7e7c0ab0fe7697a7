"""Texts, chats, and prompts with their completions as token ids."""

import functools
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from jobs.data_lines import Row
from jobs.spec import DatasetFile, Task
from jobs.trial.data.collators import IGNORED
from jobs.trial.data.recognition import Source

Columns = dict[str, list[Any]]  # column -> one value per row


def loaded_tokenizer(name: str) -> Any:
    """A tokenizer that can pad. Raises ValueError, in one sentence, if it cannot."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    if tokenizer.pad_token is None and tokenizer.eos_token is not None:
        # Usual for models that were never trained on padding, because the loss leaves it out.
        tokenizer.pad_token = tokenizer.eos_token
    if tokenizer.pad_token is None:
        raise ValueError(
            f"the tokenizer {name} has neither a padding token nor an end token: set pad_token in "
            "its tokenizer_config.json"
        )
    return tokenizer


def tokenizer_of(file: DatasetFile, source: str, *, has_chats: bool = False) -> Any:
    """The tokenizer for texts or chats in the column ``source``. Raises ValueError without one."""
    tokenizer = loaded_tokenizer(tokenizer_name(file, source))
    if has_chats:
        require_chat_template(tokenizer, file)
    return tokenizer


def tokenizer_name(file: DatasetFile, source: str) -> str:
    """What the user gives as the tokenizer. Raises ValueError if that is nothing."""
    if file.tokenizer is None:
        raise ValueError(
            f"{file.path} has {source}, which needs a tokenizer: name one in data.file.tokenizer"
        )
    return file.tokenizer


def require_chat_template(tokenizer: Any, file: DatasetFile) -> None:
    """Raises ValueError if the tokenizer of a file has no chat template."""
    if not getattr(tokenizer, "chat_template", None):
        raise ValueError(
            f"the tokenizer {file.tokenizer} has no chat template, which rows of messages need: "
            "name the tokenizer of a chat model in data.file.tokenizer, or put a "
            "chat_template.jinja beside yours"
        )


def require_chats(prompt: Any, completion: Any, file: DatasetFile) -> None:
    """Raises ValueError if a prompt and its completion are not both lists."""
    if not isinstance(prompt, list) or not isinstance(completion, list):
        raise ValueError(
            f"prompt and completion of {file.path} must both be texts, or both lists of messages"
        )


def rows_to_tokens(
    tokenizer: Any, file: DatasetFile, task: Task, source: Source
) -> Callable[[Columns], Mapping[str, Any]]:
    """A function from rows to token ids, attention masks and labels; may raise ValueError."""
    tokens = _Tokens(tokenizer, file)
    if source == "messages":
        require_chat_template(tokenizer, file)
        return tokens.of_chats
    if source == "prompt" and task == "causal-lm":
        return tokens.of_prompts
    if source == "prompt":
        return functools.partial(tokens.of_pairs_of_texts, "prompt", "completion")
    if task == "seq2seq-lm":
        return functools.partial(tokens.of_pairs_of_texts, "text", "target")
    if task == "token-classification":
        return tokens.of_words
    return tokens.of_texts


class _Tokens:
    def __init__(self, tokenizer: Any, file: DatasetFile) -> None:
        self._tokenizer = tokenizer
        self._file = file
        self._limit = {"truncation": True, "max_length": file.max_length}

    def of_texts(self, rows: Columns) -> Mapping[str, Any]:
        pairs = self._checked(rows, "text_pair") if "text_pair" in rows else None
        return self._tokenizer(self._checked(rows, "text"), pairs, **self._limit)

    def of_pairs_of_texts(self, text: str, target: str, rows: Columns) -> Mapping[str, Any]:
        """One column of texts for the encoder, and another as labels."""
        encoded = self._tokenizer(self._checked(rows, text), **self._limit)
        labels = self._tokenizer(text_target=self._checked(rows, target), **self._limit)
        return {**encoded, "labels": labels["input_ids"]}

    def of_words(self, rows: Columns) -> Mapping[str, Any]:
        """Lists of words, each with a label: the label goes to the word's first token."""
        if rows["text"] and isinstance(rows["text"][0], str):
            return self.of_texts(rows)
        encoded = self._tokenizer(rows["text"], is_split_into_words=True, **self._limit)
        labels = []
        for index, word_labels in enumerate(rows["labels"]):
            if (words := len(rows["text"][index])) != len(word_labels):
                counts = f"{words} words and {len(word_labels)} labels"
                raise ValueError(f"a row of {self._file.path} has {counts}")
            labels.append(_labels_of_tokens(encoded.word_ids(index), word_labels))
        return {**encoded, "labels": labels}

    def of_chats(self, rows: Columns) -> Mapping[str, Any]:
        """Chats in the tokenizer's template. The loss counts every token, of every role."""
        texts = [self._chat(row["messages"], row) for row in _each(rows)]
        # The template writes its own special tokens.
        encoded = self._tokenizer(texts, add_special_tokens=False, **self._limit)
        return {**encoded, "labels": list(map(list, encoded["input_ids"]))}

    def of_prompts(self, rows: Columns) -> Mapping[str, Any]:
        """Prompts with their completions, as texts or as chats. The loss leaves the prompts out."""
        columns: Columns = {"input_ids": [], "attention_mask": [], "labels": []}
        for row in _each(rows):
            split = self._split_chat
            if isinstance(row["prompt"], str) and isinstance(row["completion"], str):
                split = self._split_text
            before, after = split(row)
            # A long prompt may leave no room for its completion. Such a row teaches nothing.
            ids = [*before, *after][: self._file.max_length]
            labels = [*[IGNORED] * len(before), *after][: self._file.max_length]
            columns["input_ids"].append(ids)
            columns["attention_mask"].append([1] * len(ids))
            columns["labels"].append(labels)
        return columns

    def _split_text(self, row: Row) -> tuple[list[int], list[int]]:
        """Token ids of a prompt with its special tokens, and of its completion with an end."""
        end = self._tokenizer.eos_token_id
        before = list(self._tokenizer(row["prompt"])["input_ids"])
        # Some tokenizers end each text with a special token. The completion follows, so remove it.
        while before and before[-1] in (end, self._tokenizer.sep_token_id):
            before.pop()
        after = self._ids(row["completion"])
        if end is not None:
            after.append(end)
        return before, after

    def _split_chat(self, row: Row) -> tuple[list[int], list[int]]:
        """Token ids of the messages of a prompt, and of those of its completion."""
        require_chat_template(self._tokenizer, self._file)
        require_chats(row["prompt"], row["completion"], self._file)
        before = self._chat(row["prompt"], row, answers_next=True)
        whole = self._chat([*row["prompt"], *row["completion"]], row)
        if whole.startswith(before):
            return self._ids(before), self._ids(whole.removeprefix(before))
        # The template writes the prompt differently in a finished chat. The answer then begins
        # with the first token that differs.
        ids = self._ids(whole)
        pairs = zip(self._ids(before), ids, strict=False)
        shared = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
        return ids[:shared], ids[shared:]

    def _chat(self, messages: Any, row: Row, *, answers_next: bool = False) -> str:
        """The text of a chat, with the row's tools and settings of the template. ``answers_next``
        appends the beginning of the answer."""
        if not isinstance(messages, list):
            raise ValueError(f"messages of {self._file.path} must be lists, not texts or the like")
        settings = {
            **(_parsed(row.get("chat_template_kwargs")) or {}),
            "tools": _parsed(row.get("tools")) or None,
            "tokenize": False,
            "add_generation_prompt": answers_next,
        }
        try:
            return self._tokenizer.apply_chat_template(_without_gaps(messages), **settings)
        except Exception as error:  # a template is a program, which may raise anything
            first = messages[0].get("content") if messages else ""
            raise ValueError(
                f"the chat template of {self._file.tokenizer} cannot write the chat of "
                f"{self._file.path} that begins with {first!r:.80}: {error}"
            ) from None

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _checked(self, rows: Columns, name: str) -> list[Any]:
        """The values of a column. Raises ValueError for one that is no text."""
        for value in rows[name]:
            if not isinstance(value, str):
                what = f"{value!r:.50} where its {name} should be"
                raise ValueError(f"a row of {self._file.path} has {what}")
        return rows[name]


def _each(rows: Columns) -> Iterator[Row]:
    return (dict(zip(rows, values, strict=True)) for values in zip(*rows.values(), strict=True))


def _parsed(value: Any) -> Any:
    """A value of a chat; data sets may keep mappings as JSON texts."""
    return json.loads(value) if isinstance(value, str) else _without_gaps(value)


def _without_gaps(value: Any) -> Any:
    """Without keys that have no value: Arrow gives each mapping the keys of all others."""
    if isinstance(value, Mapping):
        return {key: _without_gaps(item) for key, item in value.items() if item is not None}
    return list(map(_without_gaps, value)) if isinstance(value, list) else value


def _labels_of_tokens(word_of_token: Sequence[int | None], word_labels: Sequence[int]) -> list[int]:
    """The label of a word for its first token, else the ignored one (None: a special token)."""
    pairs = itertools.pairwise((None, *word_of_token))
    return [
        IGNORED if word is None or word == previous else word_labels[word]
        for previous, word in pairs
    ]
