"""Chosen rows of a dataset, for steps and evaluations after the training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, Subset


def loader_of(rows: Sequence[Sequence[int]], like: Any, accelerator: Any) -> Any:
    """A data loader of these micro-batches of rows, in their order.

    ``like`` is the training's own data loader, whose dataset and collator it shares.
    """
    loader: DataLoader[Any] = DataLoader(
        like.dataset,
        batch_sampler=_GivenRows(rows),
        collate_fn=like.collate_fn,
        pin_memory=torch.cuda.is_available() and like.pin_memory,
    )
    return accelerator.prepare_data_loader(loader)


class _GivenRows(BatchSampler):
    """Yields given micro-batches. Accelerate reads attributes of the base class."""

    def __init__(self, rows: Sequence[Sequence[int]]) -> None:
        largest = max(len(micro_batch) for micro_batch in rows)
        super().__init__(range(len(rows)), batch_size=largest, drop_last=False)
        self._rows = [list(micro_batch) for micro_batch in rows]

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


def subset(dataset: Any, rows: Sequence[int]) -> Any:
    """These rows of a dataset, as a dataset of the same kind where that is possible."""
    if hasattr(dataset, "select"):
        return dataset.select(rows)
    return Subset(dataset, rows)
