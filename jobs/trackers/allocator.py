"""PyTorch's CUDA caching allocator: what tensors took at the peak, and what was reserved for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from jobs.node import memory_cap
from jobs.record import Column
from jobs.trackers.base import Moment, Tracker


class Allocator(Tracker):
    """Peaks over the training, warm-up included; repeats to the byte over fresh processes. Silent without CUDA."""

    columns: ClassVar = (
        Column(
            "peak_allocated_bytes",
            "int64",
            "most bytes held by tensors at once during training (without a GPU: tracked in the inspected step)",
            unit="B",
        ),
        Column(
            "peak_reserved_bytes",
            "int64",
            "most bytes the caching allocator held from the device during training",
            unit="B",
        ),
        Column(
            "model_allocated_bytes",
            "int64",
            "bytes held by tensors once the model is on the device",
            unit="B",
        ),
        Column(
            "allocator_retries", "int64", "times the allocator had to flush its cache and try again"
        ),
        Column("allocator_ooms", "int64", "out-of-memory errors the allocator raised"),
        Column(
            "allocator_limit_bytes",
            "int64",
            "most bytes the caching allocator may hold, under a cap; null where only the device limits it",
            unit="B",
        ),
    )

    def __init__(self) -> None:
        self._model_bytes: int | None = None

    def at(self, moment: Moment, seconds: float) -> None:
        import torch

        if not torch.cuda.is_initialized():
            return
        if moment is Moment.MODEL:
            self._model_bytes = torch.cuda.memory_allocated()
        elif moment is Moment.TRAIN_BEGIN:
            torch.cuda.reset_peak_memory_stats()

    def measurements(self) -> Mapping[str, Any]:
        import torch

        if not torch.cuda.is_initialized():
            return {}
        stats = torch.cuda.memory_stats()
        values = {
            "peak_allocated_bytes": stats["allocated_bytes.all.peak"],
            "peak_reserved_bytes": stats["reserved_bytes.all.peak"],
            "allocator_retries": stats["num_alloc_retries"],
            "allocator_ooms": stats["num_ooms"],
        }
        if (limit := memory_cap.limit_bytes()) is not None:
            values["allocator_limit_bytes"] = limit
        if self._model_bytes is not None:
            values["model_allocated_bytes"] = self._model_bytes
        return values
