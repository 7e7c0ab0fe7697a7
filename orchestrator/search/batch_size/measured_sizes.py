"""The batches that were measured so far of one technique set, and what follows from them."""

from __future__ import annotations

from typing import NamedTuple

from orchestrator.analysis.batch_size import BatchMeasurement


class Batch(NamedTuple):
    """How a step's samples are split."""

    micro_batch: int
    accumulation: int = 1

    @property
    def effective(self) -> int:
        """Samples per optimizer step."""
        return self.micro_batch * self.accumulation


class MeasuredSizes(dict[Batch, BatchMeasurement]):
    """Batch -> its measurement, whether it fits or not.

    A size is a micro-batch without accumulation.
    """

    @property
    def fitting(self) -> dict[int, BatchMeasurement]:
        """The sizes that fit."""
        return {size: result for size, result in self._sizes().items() if result.fits}

    @property
    def failed(self) -> dict[int, BatchMeasurement]:
        """The sizes that do not fit."""
        return {size: result for size, result in self._sizes().items() if not result.fits}

    @property
    def largest(self) -> int:
        """The largest size that fits; 0 if none does."""
        return max(self.fitting, default=0)

    @property
    def speeds(self) -> dict[int, float]:
        """Samples per second of the sizes that fit."""
        return {size: result.speed for size, result in self.fitting.items()}

    @property
    def memory(self) -> dict[int, float]:
        """Bytes of the sizes that ran, within the limit or not."""
        memory = {}
        for size, result in self._sizes().items():
            if result.memory_bytes:
                memory[size] = float(result.memory_bytes)
        return memory

    def ways_to(self, effective_batch: int) -> dict[Batch, BatchMeasurement]:
        """The batches with this effective batch."""
        return {way: result for way, result in self.items() if way.effective == effective_batch}

    def _sizes(self) -> dict[int, BatchMeasurement]:
        """Micro-batch -> its measurement without accumulation."""
        sizes = {}
        for batch, result in self.items():
            if batch.accumulation == 1:
                sizes[batch.micro_batch] = result
        return sizes
