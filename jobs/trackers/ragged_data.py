"""Rows of unequal length: how long they are, and the memory of random batches beside the worst."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from jobs.record import Column
from jobs.trackers.operators import Operators
from jobs.trackers.tracker import Tracker


class RaggedData(Tracker):
    """Reads the peaks before a step on the longest rows. Without unequal rows it measures nothing.

    ::

        warm-up, counted steps on random batches │ a step on the longest rows together
        ─────────────────────────────────────────┼────────────────────────────────────
             typical_peak_allocated_bytes        │  peak_allocated_bytes is of both
    """

    columns: ClassVar = (
        Column.nbytes(
            "typical_peak_allocated_bytes",
            "Most bytes that tensors held at once on random batches; null where all rows of the "
            "data are equally long",
        ),
        Column.count("longest_row_tokens", "Tokens of the longest row; null if all are equal"),
        Column.number("mean_row_tokens", "Mean tokens of a row; null if all are equal"),
        Column.number("padding_share", "Share of padding in an epoch's batches; null if all equal"),
    )

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._operators: Operators | None = None

    def release(self) -> None:
        """End a step that failed: a profiler that runs on would crash the interpreter."""
        self.worst_step_end()

    def describe(self, *, longest: int, mean: float, padding_share: float) -> None:
        self._values["longest_row_tokens"] = longest
        self._values["mean_row_tokens"] = mean
        self._values["padding_share"] = padding_share

    def worst_step_begin(self) -> None:
        """Every random batch was trained on; the next step is on the longest rows."""
        import torch

        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
            self._values["typical_peak_allocated_bytes"] = torch.cuda.max_memory_allocated()
            return
        # Without an allocator that counts, PyTorch's profiler follows this step's memory.
        self._operators = Operators()
        self._operators.step_begin(1)

    def worst_step_end(self) -> None:
        """The step on the longest rows has ended."""
        if self._operators is not None:
            self._operators.step_end()
            self._operators.release()

    def cpu_step_peak_bytes(self) -> int | None:
        """The worst step's bytes beyond persistent_bytes on a CPU; None if it was not measured."""
        worst = {} if self._operators is None else self._operators.measurements()
        return worst.get("cpu_step_peak_bytes")

    def measurements(self) -> Mapping[str, Any]:
        return self._values
