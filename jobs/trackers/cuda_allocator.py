"""PyTorch's CUDA caching allocator: the peaks of allocated and reserved memory."""

from collections.abc import Mapping
from typing import Any, ClassVar

from jobs.record import Column
from jobs.trackers.tracker import Moment, Tracker


class Allocator(Tracker):
    """Peaks over the training, warm-up included; equal trials have equal ones, to the byte."""

    columns: ClassVar = (
        Column.nbytes(
            "peak_allocated_bytes",
            "Most bytes that tensors held at once during training, with rows of unequal length on "
            "the longest rows together (on a CPU, what lives between steps plus "
            "cpu_step_peak_bytes)",
        ),
        Column.nbytes(
            "peak_reserved_bytes",
            "Most bytes that the caching allocator held from the device, over the same steps",
        ),
        Column.nbytes("model_allocated_bytes", "Bytes of tensors once the model was on the device"),
        Column.count("allocator_retries", "Times that the allocator flushed its cache"),
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
        }
        if self._model_bytes is not None:
            values["model_allocated_bytes"] = self._model_bytes
        return values
