"""Pairs of a chosen and a rejected answer: from the user's own file, or random ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from jobs.loops.trl.token_rows import padding_tokenizer
from jobs.spec import DatasetFile, SyntheticData
from jobs.trial.data.raw_rows import RawRows
from jobs.trial.data.tokenizing import loaded_tokenizer
from jobs.trial.data.user_file import named_rows

if TYPE_CHECKING:
    from transformers import PretrainedConfig

ANSWERS = ("chosen", "rejected")
"""Columns that every row of a file of pairs has."""
_PAIR_COLUMNS = ("prompt", *ANSWERS, "tools", "chat_template_kwargs")
"""Columns that TRL reads. Without a prompt, it is what both answers begin with."""


def pairs_of_file(file: DatasetFile, *, seed: int) -> RawRows:
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
    if file.tokenizer is None:
        raise ValueError(
            f"{file.path} has texts, which need a tokenizer: name one in data.file.tokenizer"
        )
    kept = [name for name in _PAIR_COLUMNS if name in dataset.column_names]
    dataset = dataset.select_columns(kept)
    for number, row in enumerate(dataset, 1):
        problem = pair_problem(row)
        if problem:
            raise ValueError(f"row {number} of {file.path} {problem}")
    tokenizer = loaded_tokenizer(file.tokenizer)
    _check_tokenizer(tokenizer, file.tokenizer, is_chat=isinstance(dataset[0]["chosen"], list))
    return RawRows(dataset=dataset, tokenizer=tokenizer, tokens=file.max_length, seed=seed)


def pair_problem(row: Mapping[str, Any]) -> str:
    """What is wrong with a row of a prompt and two answers; empty if nothing is.

    A row without a prompt has it at the beginning of both answers.
    """
    names = [name for name in ("prompt", *ANSWERS) if name in row]
    kinds = set()
    for name in names:
        value = row[name]
        # An empty prompt trains on the answers alone. An empty answer teaches nothing.
        if value is None or (name in ANSWERS and not value):
            return f"has no {_spoken(name)}"
        if not isinstance(value, (str, list)) or not all(map(_is_message, value)):
            return f"has a {_spoken(name)} that is neither a text nor a list of messages"
        kinds.add(type(value))
    if len(kinds) > 1:
        return "has texts and messages; prompt and answers must be of one kind"
    if "prompt" in row:
        return ""
    return _implicit_prompt_problem(row["chosen"], row["rejected"])


def _implicit_prompt_problem(chosen: Any, rejected: Any) -> str:
    if chosen == rejected:
        return "has two equal answers, in which no prompt ends"
    if isinstance(chosen, list) and chosen[0] != rejected[0]:
        return "has no prompt: its two chats begin with different messages"
    shorter = min(chosen, rejected, key=len)
    if chosen[: len(shorter)] == rejected[: len(shorter)]:
        return "has an answer that is the beginning of the other, so that no prompt ends"
    return ""


def _spoken(name: str) -> str:
    """``chosen answer`` for the column ``chosen``; a prompt is a prompt."""
    return f"{name} answer" if name in ANSWERS else name


def _is_message(value: Any) -> bool:
    """Whether an item is a message of a chat. The items of a text are its letters."""
    return isinstance(value, str) or (isinstance(value, Mapping) and "role" in value)


def _check_tokenizer(tokenizer: Any, name: str, *, is_chat: bool) -> None:
    """Raise ValueError if the tokenizer cannot make token ids of the pairs as TRL does."""
    if is_chat and not tokenizer.chat_template:
        raise ValueError(
            f"the tokenizer {name} has no chat template, which answers as messages need: name the "
            "tokenizer of a chat model in data.file.tokenizer, or put a chat_template.jinja beside "
            "yours"
        )
    if not is_chat and tokenizer.eos_token is None:
        raise ValueError(f"TRL ends each answer with an end token, and the tokenizer {name} has none")


def random_pairs(
    spec: SyntheticData, config: PretrainedConfig, *, samples: int | None, seed: int
) -> RawRows:
    """Random pairs as token ids. Prompt and answer together have the tokens of a row of ``spec``.

    The prompt is half of the shorter answer's row. There are at least ``samples`` pairs, but with
    rows of unequal length as many as ``spec`` says. Raises ValueError if a row has no room for a
    prompt and an answer.
    """
    from datasets import Dataset

    if spec.sequence_length < 2:
        raise ValueError("a prompt with an answer has at least 2 tokens")
    count = spec.samples
    if spec.lengths is None:
        count = max(count, samples or 0)
    rng = np.random.default_rng(seed)
    lengths = np.stack([_answer_lengths(spec, count, rng) for _ in ANSWERS])
    prompts = lengths.min(axis=0) // 2
    # As in other random rows: the ids that the Hugging Face guide draws, or those that there are.
    highest = min(30_000, config.vocab_size)
    lowest = min(100, highest // 2)
    columns: dict[str, list[Any]] = {"prompt_ids": [], "chosen_ids": [], "rejected_ids": []}
    for index in range(count):
        sizes = (prompts[index], *(lengths[:, index] - prompts[index]))
        for column, size in zip(columns.values(), sizes, strict=True):
            column.append(rng.integers(lowest, highest, size, dtype=np.int64))
    width = spec.sequence_length if spec.padding else None
    return RawRows(
        dataset=Dataset.from_dict(columns),
        tokenizer=padding_tokenizer(getattr(config, "pad_token_id", None) or 0),
        width=width,
        seed=seed,
    )


def _answer_lengths(spec: SyntheticData, count: int, rng: np.random.Generator) -> np.ndarray:
    """The tokens of ``count`` answers with their prompts, int64, of shape (count,)."""
    full = spec.sequence_length
    wanted = spec.lengths
    if wanted is None:
        # Each position is kept with probability 1 - padding, as in other random rows.
        drawn = rng.binomial(full, 1 - spec.padding, count).astype(np.float64)
    elif wanted.distribution == "uniform":
        drawn = rng.uniform(1, 2 * wanted.mean, count)
    else:
        # The mean of a lognormal distribution is exp(mu + sigma² / 2), so mu follows from it.
        mu = np.log(wanted.mean) - wanted.sigma**2 / 2
        drawn = rng.lognormal(mu, wanted.sigma, count)
    # A prompt and an answer of one token each are the least.
    lengths: np.ndarray = drawn.round().clip(2, full).astype(np.int64)
    return lengths
