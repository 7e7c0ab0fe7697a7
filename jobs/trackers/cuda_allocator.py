"""PyTorch's CUDA caching allocator: the peaks of allocated and reserved memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from jobs.node import memory_cap
from jobs.record import Column
from jobs.trackers.tracker import Moment, Tracker


class Allocator(Tracker):
    """Peaks over the training, warm-up included. Without CUDA there is nothing to measure.

    Equal trials have equal peaks, to the byte.
    """

    columns: ClassVar = (
        Column(
            "peak_allocated_bytes",
            "int64",
            "Most bytes that tensors held at once during training, with rows of unequal length on "
            "the longest rows together (on a CPU, what lives between steps plus "
            "cpu_step_peak_bytes)",
            unit="B",
        ),
        Column(
            "peak_reserved_bytes",
            "int64",
            "Most bytes that the caching allocator held from the device during training, with "
            "rows of unequal length on the longest rows together",
            unit="B",
        ),
        Column(
            "model_allocated_bytes",
            "int64",
            "Bytes that tensors held once the model was on the device",
            unit="B",
        ),
        Column(
            "allocator_retries",
            "int64",
            "Times that the allocator had to flush its cache and try again",
        ),
        Column("allocator_ooms", "int64", "Out-of-memory errors that the allocator raised"),
        Column(
            "allocator_limit_bytes",
            "int64",
            "Most bytes that the caching allocator may hold under a memory cap; null without one",
            unit="B",
        ),
    )

    def __init__(self) -> None:
        self._model_bytes: int | None = None

    def at(self, moment: Moment, seconds: float) -> None:
        """Note the model's bytes; begin a new peak when training begins."""
        import torch

        if not torch.cuda.is_initialized():
            return
        if moment is Moment.MODEL:
            self._model_bytes = torch.cuda.memory_allocated()
        elif moment is Moment.TRAIN_BEGIN:
            torch.cuda.reset_peak_memory_stats()

    def measurements(self) -> Mapping[str, Any]:
        """The allocator's own counters, which need no synchronisation; empty without CUDA."""
        import torch

        if not torch.cuda.is_initialized():
            return {}
        # Flat names: statistic.pool.metric (torch.cuda.memory_stats).
        stats = torch.cuda.memory_stats()
        values = {
            "peak_allocated_bytes": stats["allocated_bytes.all.peak"],
            "peak_reserved_bytes": stats["reserved_bytes.all.peak"],
            "allocator_retries": stats["num_alloc_retries"],
            "allocator_ooms": stats["num_ooms"],
        }
        limit = memory_cap.limit_bytes()
        if limit is not None:
            values["allocator_limit_bytes"] = limit
        if self._model_bytes is not None:
            values["model_allocated_bytes"] = self._model_bytes
        return values
