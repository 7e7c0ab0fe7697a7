"""Which rows a loop trains on."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, Subset

from jobs.ragged_steps import RaggedSteps


def loader_of(rows: Sequence[Sequence[int]], like: Any, accelerator: Any) -> Any:
    """A loader of these micro-batches of rows, with dataset and collator of the loader ``like``."""
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
    return dataset.select(rows) if hasattr(dataset, "select") else Subset(dataset, rows)


def measured_rows(sampler: Any, ragged: RaggedSteps, seed: int) -> Any:
    """The rows to train on, of an epoch that a sampler draws; the sampler for a whole epoch. Equal
    seeds draw equal epochs."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        drawn = list(sampler)
    # Some samplers yield whole batches.
    is_batched = bool(drawn) and isinstance(drawn[0], list)
    rows = ragged.rows(list(itertools.chain.from_iterable(drawn)) if is_batched else drawn)
    return rows if ragged.distinct else sampler
