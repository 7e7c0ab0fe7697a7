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
        return {size: own for size, own in self._sizes().items() if own.fits}

    @property
    def failed(self) -> dict[int, BatchMeasurement]:
        """The sizes that do not fit."""
        return {size: own for size, own in self._sizes().items() if not own.fits}

    @property
    def largest(self) -> int:
        """The largest size that fits; 0 if none does."""
        return max(self.fitting, default=0)

    @property
    def speeds(self) -> dict[int, float]:
        """Samples per second of the sizes that fit."""
        return {size: own.speed for size, own in self.fitting.items()}

    @property
    def memory(self) -> dict[int, float]:
        """Bytes of the sizes that ran, within the limit or not."""
        sizes = self._sizes().items()
        return {size: float(own.memory_bytes) for size, own in sizes if own.memory_bytes}

    def ways_to(self, effective_batch: int) -> dict[Batch, BatchMeasurement]:
        """The batches with this effective batch."""
        return {batch: own for batch, own in self.items() if batch.effective == effective_batch}

    def _sizes(self) -> dict[int, BatchMeasurement]:
        return {batch.micro_batch: own for batch, own in self.items() if batch.accumulation == 1}
