"""Prepares pairs of answers with TRL's code: prompts, chat templates, end tokens, token ids."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from jobs.errors import UnsupportedError
from jobs.loops.trl.parameters import checked_preferences, in_one_line
from jobs.loops.trl.rows import PreparedRows
from jobs.techniques.axes.fine_tuning.preferences import PREFERENCE_TRAINERS

COLUMNS = ("prompt_ids", "chosen_ids", "rejected_ids")
"""Columns of token ids that the collator reads."""


def prepared_pairs(
    rows: Any, *, trainer: str, parameters: Mapping[str, Any]
) -> tuple[Any, PreparedRows]:
    """The pairs as token ids in ``COLUMNS``, cut to the limit, and the settings of their collator.

    ``rows`` are a ``jobs.trial.data.RawRows`` of texts, of chats, or of token ids in ``COLUMNS``.
    Raises UnsupportedError with TRL's reason for rows that TRL refuses. Raises ValueError if no
    pair is left.
    """
    given = checked_preferences(trainer, parameters)
    dataset = rows.dataset
    if not set(COLUMNS).issubset(dataset.column_names):
        dataset = _prepared_by_trl(rows, trainer, given)
    if len(dataset) == 0:
        raise ValueError(
            f"TRL leaves no pair: each prompt has {rows.tokens} tokens or more, and pairs are cut "
            "to that many"
        )
    collator = PreparedRows(rows.tokenizer, rows.width, flattens_rows=False, counts_rows=True)
    return dataset.select_columns(list(COLUMNS)), collator


def _prepared_by_trl(rows: Any, trainer: str, parameters: Mapping[str, Any]) -> Any:
    """The dataset, prepared by the method of the Trainer, which reads only its tokenizer."""
    import trl

    trainer_class = getattr(trl, PREFERENCE_TRAINERS[trainer].trainer)
    settings = SimpleNamespace(
        dataset_num_proc=parameters.get("dataset_num_proc"),
        max_length=rows.tokens,
        truncation_mode="keep_start",
    )
    unbound = SimpleNamespace(_tokenizer=rows.tokenizer)
    try:
        prepared = trainer_class._prepare_dataset(
            unbound, rows.dataset, rows.tokenizer, settings, "train"
        )
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError) as error:
        raise UnsupportedError("trl", f"TRL refuses these rows: {in_one_line(error)}") from error
    left_out = len(rows.dataset) - len(prepared)
    if left_out:
        print(
            f"TRL leaves out {left_out} of {len(rows.dataset)} pairs, whose prompts have "
            f"{rows.tokens} tokens or more",
            flush=True,
        )
    return prepared.map(_cutter(rows.tokens))


def _cutter(limit: int | None) -> Any:
    """A function that cuts the answers of a row, as TRL's collator does with ``max_length``."""

    def cut(row: Mapping[str, Any]) -> dict[str, Any]:
        """The answers; with its prompt, each has at most ``limit`` tokens."""
        room = None
        if limit is not None:
            room = limit - len(row["prompt_ids"])
        return {name: row[name][:room] for name in ("chosen_ids", "rejected_ids")}

    return cut
