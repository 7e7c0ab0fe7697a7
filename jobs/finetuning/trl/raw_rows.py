"""Rows before TRL's preparation: texts, chats, token ids, pairs. train.py copies functions."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from jobs.data_lines import chat_fault
from jobs.spec import DatasetFile, SyntheticData
from jobs.trial.data.recognition import Source
from jobs.trial.data.row_lengths import ragged_lengths, random_lengths, random_token_range
from jobs.trial.data.tokenizing import loaded_tokenizer, tokenizer_of
from jobs.trial.data.user_file import named_rows, rows_of_file, with_joined_parts

if TYPE_CHECKING:
    from transformers import PretrainedConfig

ANSWERS = ("chosen", "rejected")
"""Columns that every row of pairs has."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RawRows:
    """Rows of a causal language model, before a loop's own preparation."""

    dataset: Any  # a ``datasets.Dataset`` of lists and texts
    tokenizer: Any
    """The tokenizer of the data file; for token ids without a tokenizer, one that can only pad."""
    width: int | None = None
    """Tokens to which every row was padded, and is to be padded again; None: no fixed number."""
    tokens: int | None = None
    """Longer rows are to be cut to this many tokens; None: they stay as they are."""
    block_tokens: int = 0  # tokens of a block, if rows are packed into blocks
    seed: int = 0


_READ_COLUMNS: dict[Source, tuple[str, ...]] = {
    "input_ids": ("input_ids", "labels", "attention_mask"),
    "messages": ("messages", "tools", "chat_template_kwargs"),
    "prompt": ("prompt", "completion", "tools", "chat_template_kwargs"),
    "text": ("text",),
}
"""Source of a causal language model -> the columns that a preparation reads."""


def raw_rows_of_file(
    file: DatasetFile, config: PretrainedConfig, *, block_tokens: int, seed: int
) -> RawRows:
    """The rows of the user's file. Raises ValueError, in one sentence, for another kind of file."""
    dataset, source = rows_of_file(file, "causal-lm")
    kept = [name for name in _READ_COLUMNS[source] if name in dataset.column_names]
    dataset = dataset.select_columns(kept)
    if source == "input_ids":
        rows = raw_rows_of_tokens(dataset, config, block_tokens=block_tokens, seed=seed)
        tokenizer = loaded_tokenizer(file.tokenizer) if file.tokenizer else rows.tokenizer
        return replace(rows, tokens=file.max_tokens, tokenizer=tokenizer)
    has_chats = source == "messages" or not isinstance(dataset[0][source], str)
    return RawRows(
        dataset=dataset,
        tokenizer=tokenizer_of(file, source, has_chats=has_chats),
        tokens=file.max_length,
        block_tokens=block_tokens,
        seed=seed,
    )


def raw_rows_of_tokens(
    dataset: Any, config: PretrainedConfig, *, block_tokens: int, seed: int
) -> RawRows:
    """Rows of token ids without their padding, which the loop adds again."""
    dataset = dataset.with_format(None)
    width = None
    if "attention_mask" in dataset.column_names:
        if ragged_lengths(dataset) is None:
            width = len(dataset[0]["input_ids"])
        dataset = dataset.map(without_padding, remove_columns=["attention_mask"])
    kept = [name for name in ("input_ids", "labels") if name in dataset.column_names]
    return RawRows(
        dataset=dataset.select_columns(kept),
        tokenizer=padding_tokenizer(getattr(config, "pad_token_id", None) or 0),
        width=width,
        block_tokens=block_tokens,
        seed=seed,
    )


_PAIR_COLUMNS = ("prompt", *ANSWERS, "tools", "chat_template_kwargs")
"""Columns that TRL reads. Without a prompt, it is what both answers begin with."""


def pairs_of_file(file: DatasetFile) -> RawRows:
    """The pairs of the user's file, as texts or chats. Raises ValueError for an unsuitable file."""
    dataset = named_rows(file)
    missing = [name for name in ANSWERS if name not in dataset.column_names]
    if missing:
        have = ", ".join(dataset.column_names)
        raise ValueError(
            f"{file.path} has the columns {have}, and a training on pairs of answers needs "
            f"{' and '.join(missing)}: name yours in data.file.columns"
        )
    if "images" in dataset.column_names:
        raise ValueError(f"{file.path} has images, and pairs of answers are made from texts alone")
    kept = [name for name in _PAIR_COLUMNS if name in dataset.column_names]
    dataset = with_joined_parts(dataset.select_columns(kept), file.path)
    for number, row in enumerate(dataset, 1):
        if problem := pair_problem(row):
            raise ValueError(f"row {number} of {file.path} {problem}")
    is_chat = isinstance(dataset[0]["chosen"], list)
    tokenizer = tokenizer_of(file, "chosen", has_chats=is_chat)
    if not is_chat and tokenizer.eos_token is None:
        raise ValueError(
            f"TRL ends each answer with an end token, and the tokenizer {file.tokenizer} has none"
        )
    return RawRows(dataset=dataset, tokenizer=tokenizer, tokens=file.max_length)


def random_pairs(
    spec: SyntheticData, config: PretrainedConfig, *, samples: int | None, seed: int
) -> RawRows:
    """Random pairs as token ids. Prompt and answer together have the tokens of a row of ``spec``.
    The prompt is half of the shorter answer's row. There are at least ``samples`` pairs, if all
    have one length. Raises ValueError if a row has no room for a prompt and an answer."""
    from datasets import Dataset

    if spec.sequence_length < 2:
        raise ValueError("a prompt with an answer has at least 2 tokens")
    count = spec.samples
    if spec.lengths is None:
        count = max(count, samples or 0)
    rng = np.random.default_rng(seed)
    # A prompt and an answer of one token each are the least.
    lengths = np.stack([random_lengths(spec, count, rng, shortest=2) for _ in ANSWERS])
    prompts = lengths.min(axis=0) // 2
    lowest, highest = random_token_range(config.vocab_size)
    columns: dict[str, list[Any]] = {"prompt_ids": [], "chosen_ids": [], "rejected_ids": []}
    for index in range(count):
        sizes = (prompts[index], *(lengths[:, index] - prompts[index]))
        for column, size in zip(columns.values(), sizes, strict=True):
            column.append(rng.integers(lowest, highest, size, dtype=np.int64))
    return RawRows(
        dataset=Dataset.from_dict(columns),
        tokenizer=padding_tokenizer(getattr(config, "pad_token_id", None) or 0),
        width=spec.sequence_length if spec.padding else None,
    )


def without_padding(row: dict[str, Any]) -> dict[str, Any]:
    """The tokens and labels of a row at the positions where its attention mask is 1."""
    from itertools import compress

    mask = row["attention_mask"]
    return {name: list(compress(row[name], mask)) for name in row if name != "attention_mask"}


def padding_tokenizer(pad_token_id: int) -> Any:
    """A tokenizer with only the padding token, which has the model's id."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    vocabulary = Tokenizer(models.WordLevel({"<pad>": pad_token_id}, unk_token="<pad>"))
    return PreTrainedTokenizerFast(tokenizer_object=vocabulary, pad_token="<pad>")


def pair_problem(row: Mapping[str, Any]) -> str:
    """What is wrong with a row of a prompt and two answers; empty if nothing is. A row without a
    prompt has it at the beginning of both answers."""
    names = [name for name in ("prompt", *ANSWERS) if name in row]
    kinds = set()
    for name in names:
        value = row[name]
        # A prompt may be an empty text. An empty answer has no token to learn.
        if value is None or (not value and (name, value) != ("prompt", "")):
            return f"has no {_spoken(name)}"
        if not isinstance(value, str | list):
            return f"has a {_spoken(name)} that is neither a text nor a list of messages"
        if fault := chat_fault(value):
            return f"has a {_spoken(name)} that {fault}"
        kinds.add(type(value))
    if len(kinds) > 1:
        return "has texts and messages; prompt and answers must be of one kind"
    first = [row[name][0] for name in ANSWERS]
    if "prompt" not in row and list in kinds and first[0] != first[1]:
        return "has no prompt: its two chats begin with different messages"
    return ""


def implicit_prompt_note(row: Mapping[str, Any]) -> str:
    """What is unusual about a prompt that is only in the answers; empty if nothing is."""
    if "prompt" in row:
        return ""
    shorter = min(row["chosen"], row["rejected"], key=len)
    if row["chosen"][: len(shorter)] != row["rejected"][: len(shorter)]:
        return ""
    return "has an answer with which the other begins, so TRL takes all but its end as the prompt"


def _spoken(name: str) -> str:
    """``chosen answer`` for the column ``chosen``; a prompt is a prompt."""
    return f"{name} answer" if name in ANSWERS else name


def prompt_of_pair(row: Mapping[str, Any]) -> Any:
    """The prompt of a row without mistakes: its own, or what both answers begin with. As
    ``trl.extract_prompt`` does, a text's prompt ends before a space."""
    if "prompt" in row:
        return row["prompt"]
    chosen, rejected = row["chosen"], row["rejected"]
    # TRL leaves at least the last letter or message of the shorter one.
    most = min(len(chosen), len(rejected)) - 1
    pairs = zip(chosen[:most], rejected[:most], strict=True)
    length = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
    if length and chosen[length - 1] == " ":
        length -= 1
    return chosen[:length]
