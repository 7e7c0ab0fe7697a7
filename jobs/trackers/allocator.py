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
            name="peak_allocated_bytes",
            type="int64",
            unit="B",
            doc="most bytes held by tensors at once during training (without a GPU: tracked in the inspected step)",
        ),
        Column(
            name="peak_reserved_bytes",
            type="int64",
            unit="B",
            doc="most bytes the caching allocator held from the device during training",
        ),
        Column(
            name="model_allocated_bytes",
            type="int64",
            unit="B",
            doc="bytes held by tensors once the model is on the device",
        ),
        Column(
            name="allocator_retries",
            type="int64",
            doc="times the allocator had to flush its cache and try again",
        ),
        Column(
            name="allocator_ooms", type="int64", doc="out-of-memory errors the allocator raised"
        ),
        Column(
            name="allocator_limit_bytes",
            type="int64",
            unit="B",
            doc="most bytes the caching allocator may hold, under a cap; null where only the device limits it",
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
