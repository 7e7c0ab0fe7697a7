"""Rows of unequal length: how long they are, and the memory of random batches beside the worst."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from jobs.record import Column
from jobs.trackers.operators import Operators
from jobs.trackers.tracker import Tracker

if TYPE_CHECKING:
    from jobs.ragged_steps import RaggedSteps


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
        self.steps: RaggedSteps | None = None
        """The steps that are measured; None: all rows are equally long."""
        self._values: dict[str, Any] = {}
        self._operators: Operators | None = None

    def release(self) -> None:
        """End a step that failed: a profiler that runs on would crash the interpreter."""
        self.worst_step_end()

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
        if self.steps is None:
            return {}
        return {
            **self._values,
            "longest_row_tokens": self.steps.longest_row,
            "mean_row_tokens": self.steps.mean_row,
            "padding_share": self.steps.padding_share,
        }
