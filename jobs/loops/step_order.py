"""The steps of a length-grouped epoch in random order, so that a few of them stand for all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch


class StepsInRandomOrder(torch.utils.data.Sampler[int]):
    """Shuffles the order of another sampler's groups of ``step`` rows, and keeps each group's rows.

    transformers' ``LengthGroupedSampler`` draws about fifty steps at a time and yields them longest
    first. So the first ten steps of an epoch are its slowest, and do not show its usual speed. The
    groups stay as they are, so padding and memory do not change.
    """

    def __init__(self, sampler: Any, step: int) -> None:
        self._sampler = sampler
        self._step = step

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[int]:
        rows = list(self._sampler)
        full = len(rows) // self._step
        # A last, short group stays the last one, so that every other step is full.
        for index in torch.randperm(full).tolist():
            yield from rows[index * self._step : (index + 1) * self._step]
        yield from rows[full * self._step :]
