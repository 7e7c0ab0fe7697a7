"""Rows for a loop that tokenizes them itself: chats and texts as they are, or token ids."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from jobs.finetuning.trl.token_rows import padding_tokenizer, without_padding
from jobs.spec import DatasetFile
from jobs.trial.data.recognition import Source
from jobs.trial.data.row_lengths import ragged_lengths
from jobs.trial.data.tokenizing import loaded_tokenizer, tokenizer_of
from jobs.trial.data.user_file import rows_of_file

if TYPE_CHECKING:
    from transformers import PretrainedConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class RawRows:
    """Rows of a causal language model, before a loop's own preparation."""

    dataset: Any
    """A ``datasets.Dataset`` of lists and texts."""
    tokenizer: Any
    """The tokenizer of the data file; for token ids without a tokenizer, one that can only pad."""
    width: int | None = None
    """Tokens to which every row was padded, and is to be padded again; None: no fixed number."""
    tokens: int | None = None
    """Longer rows are to be cut to this many tokens; None: they stay as they are."""
    block_tokens: int = 0
    """Tokens of a block, if rows are packed into blocks."""
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
        rows = replace(rows, tokens=file.max_tokens)
        if file.tokenizer is not None:
            rows = replace(rows, tokenizer=loaded_tokenizer(file.tokenizer))
        return rows
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
