"""Rows of a user's file as a padded batch."""

from collections.abc import Callable
from typing import Any

import torch

from jobs.spec import Task

IGNORED = -100
"""The label that the loss leaves out."""

Collator = Callable[[list[Any]], dict[str, torch.Tensor]]
"""Makes a batch of a list of rows."""


def tokenizer_collator(tokenizer: Any, task: Task, *, has_labels: bool) -> Collator:
    """transformers' collator for the task; ``has_labels``: rows bring a label for each token."""
    import transformers

    collator: Collator = transformers.DataCollatorWithPadding(tokenizer)
    if task == "token-classification":
        collator = transformers.DataCollatorForTokenClassification(tokenizer)
    elif task == "seq2seq-lm" or (task in ("causal-lm", "masked-lm") and has_labels):
        # Unlike the collator of language models, it pads labels with the ignored label.
        collator = transformers.DataCollatorForSeq2Seq(tokenizer)
    elif task in ("causal-lm", "masked-lm"):
        collator = transformers.DataCollatorForLanguageModeling(tokenizer, mlm=task == "masked-lm")
    return collator


class PadRows:
    """Pads rows of token ids that came without a tokenizer to the longest of their batch."""

    pad_to_multiple_of: int | None = None
    """The batch is as long as the next multiple, as with transformers' collators; None: 1."""

    def __init__(self, pad_token_id: int, masked: str = "input_ids") -> None:
        """``masked``: the column whose values a mask tells from padding; without it there is no
        mask."""
        self._masked = masked
        # Every other column, such as a mask or token types, is padded with 0.
        ids = dict.fromkeys(("input_ids", "decoder_input_ids"), pad_token_id)
        self._padding = {**ids, "labels": IGNORED}

    def __call__(self, rows: list[Any]) -> dict[str, torch.Tensor]:
        """Column -> int64 tensor of shape (rows, longest), or (rows,) for one number a row."""
        batch = {name: self._column(name, [row[name] for row in rows]) for name in rows[0]}
        if "attention_mask" not in batch and self._masked in batch:
            # Without a mask in the rows, every token counts and no padding does.
            ones = [torch.ones(len(row[self._masked]), dtype=torch.int64) for row in rows]
            batch["attention_mask"] = self._column("attention_mask", ones)
        return batch

    def _column(self, name: str, values: list[Any]) -> torch.Tensor:
        tensors = [torch.as_tensor(value) for value in values]
        if tensors[0].ndim == 0:
            return torch.stack(tensors)
        value = self._padding.get(name, 0)
        column = torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=value)
        missing = -column.shape[1] % (self.pad_to_multiple_of or 1)
        return torch.nn.functional.pad(column, (0, missing), value=value)
