"""Prepares pairs of answers with TRL's code: prompts, chat templates, end tokens, token ids."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from jobs.finetuning.trl.parameters import checked_dpo, refusal
from jobs.finetuning.trl.raw_rows import pairs_of_file, random_pairs
from jobs.finetuning.trl.sft_rows import PreparedRows
from jobs.spec import DataSpec

COLUMNS = ("prompt_ids", "chosen_ids", "rejected_ids")
"""Columns of token ids that the collator reads."""


def dpo_rows(
    data: DataSpec,
    config: Any,
    *,
    samples: int | None,
    seed: int,
    batching: str,
    trainer: str,
    parameters: Mapping[str, Any],
) -> tuple[Any, PreparedRows]:
    """A trial's pairs, prepared. Raises ValueError, in one sentence, for an unsuitable file."""
    if data.file is not None:
        rows = pairs_of_file(data.file)
    else:
        assert data.synthetic is not None
        rows = random_pairs(data.synthetic, config, samples=samples, seed=seed)
    return prepared_pairs(rows, trainer=trainer, parameters=parameters)


def prepared_pairs(
    rows: Any, *, trainer: str, parameters: Mapping[str, Any]
) -> tuple[Any, PreparedRows]:
    """The pairs as token ids in ``COLUMNS``, cut to the limit, and the settings of their collator.

    ``rows`` are a ``RawRows`` of texts, of chats, or of token ids in ``COLUMNS``. Raises
    UnsupportedError with TRL's reason for rows that TRL refuses, and ValueError if no pair is left.
    """
    given = checked_dpo(trainer, parameters)
    dataset = rows.dataset
    if not set(COLUMNS).issubset(dataset.column_names):
        dataset = _prepared_by_trl(rows, given)
    if len(dataset) == 0:
        raise ValueError(
            f"TRL leaves no pair: each prompt has {rows.tokens} tokens or more, and pairs are cut "
            "to that many"
        )
    left_out = 1 - len(dataset) / len(rows.dataset)
    collator = PreparedRows(rows.tokenizer, rows.width, counts_rows=True, left_out=left_out)
    return dataset.select_columns(list(COLUMNS)), collator


def _prepared_by_trl(rows: Any, parameters: Mapping[str, Any]) -> Any:
    """The dataset, prepared by the method of ``DPOTrainer``, which reads only its tokenizer."""
    from trl import DPOTrainer

    settings: Any = SimpleNamespace(
        dataset_num_proc=parameters.get("dataset_num_proc"),
        max_length=rows.tokens,
        truncation_mode="keep_start",
    )
    unbound: Any = SimpleNamespace(_tokenizer=rows.tokenizer)
    try:
        prepared = DPOTrainer._prepare_dataset(
            unbound, rows.dataset, rows.tokenizer, settings, "train"
        )
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError) as error:
        raise refusal("these rows", error) from error

    def cut(row: Mapping[str, Any]) -> dict[str, Any]:
        """The answers, cut as TRL's collator does: with its prompt, each has at most the limit."""
        room = None if rows.tokens is None else rows.tokens - len(row["prompt_ids"])
        return {name: row[name][:room] for name in ("chosen_ids", "rejected_ids")}

    return prepared.map(cut)
