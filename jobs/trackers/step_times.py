"""The time of every optimizer step, its wait for data, and the rates over the counted steps."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from jobs.record import Column
from jobs.steady_state import MIN_SECONDS, are_enough, mean_step_error, steady_from
from jobs.trackers.sources import cuda_events
from jobs.trackers.sources.micro_batches import CountSamples, MicroBatches
from jobs.trackers.tracker import Moment, Tracker

if TYPE_CHECKING:
    import torch

    from jobs.ragged_steps import RaggedSteps


class Steps(Tracker):
    """Rates are totals over the counted steps, never means of step rates.

    ::

        step k-1 │ data wait │ forward backward … optimizer │ step k+1
                 ├──────────── step_seconds ────────────────┤  host clock between step ends
                 ├──────────── device_seconds ──────────────┤  CUDA events at the same points

    The counted steps begin when the device, not the host, ended the last uncounted step. So the
    device is never synchronised before them. Synchronising would empty its queue, which would make
    the next step slower.
    """

    columns: ClassVar = (
        Column.count("steps_counted", "Optimizer steps that the rates are computed from"),
        Column.count("warmup_steps", "Optimizer steps before the counted ones"),
        Column.rate(
            "samples_per_second",
            "Throughput: samples trained on per counted second; of rows of unequal length, as an "
            "epoch of the data would have it",
        ),
        Column.rate("tokens_per_second", "Tokens trained on per counted second, with padding"),
        Column.rate("real_tokens_per_second", "Tokens trained on per counted second, no padding"),
        Column.seconds("step_seconds_median", "Median time of a counted step, data wait included"),
        Column.seconds("data_seconds_median", "Median wait of a counted step for its data"),
        Column.seconds("first_step_seconds", "Time of the first step, lazy loads and compiling"),
        Column.number(
            "samples_per_second_ci95",
            "Half the 95 % confidence interval of the mean counted step, relative to it; combines "
            "the spread of these steps with the usual spread of a trial",
        ),
        Column.number(
            "host_bound_share", "Share of micro-batches after which the GPU had no work left"
        ),
        Column.seconds("counted_seconds", "Total time of the counted steps"),
        Column.number(
            "new_shapes_share",
            "Share of an epoch's time in which kernels are prepared for lengths that are new; it "
            "is part of the throughput; null if all rows are equally long or the epoch is measured",
        ),
    )

    def __init__(self) -> None:
        self.count_samples: CountSamples | None = None
        """Counts the samples of a batch; None: its first dimension does."""
        self.ragged: RaggedSteps | None = None
        """Makes steps on rows of unequal length comparable; None: all rows are equally long."""
        # One entry per step end, and one for the beginning of training.
        self._marks: list[float] = []
        self._events: list[torch.cuda.Event] = []
        # One entry per step.
        self._data_seconds: list[float] = []
        self._backward_events: list[torch.cuda.Event] = []
        """One for each step, after its last backward pass."""
        self._micro_batches_so_far: list[int] = []
        """Micro-batches that were trained on by the end of each step."""
        # One entry per micro-batch.
        self._micro_batches = MicroBatches()
        self._device_was_idle: list[bool] = []
        self._data_wait = 0.0
        self._last_backward: torch.cuda.Event | None = None

        self._first_counted: int | None = None
        """Index of the first counted step; None: not decided yet."""

    def at(self, moment: Moment, seconds: float) -> None:
        if moment is Moment.TRAIN_BEGIN:
            self._mark(seconds)

    def data_wait(self, seconds: float) -> None:
        self._data_wait += seconds

    def micro_batch(self, inputs: Mapping[str, Any]) -> None:
        self._micro_batches.add(inputs, self.count_samples)

    def loss(self, value: torch.Tensor) -> None:
        """Note whether the device has nothing left to do after the backward pass."""
        if value.is_cuda:
            self._last_backward = cuda_events.recorded()
            was_idle = cuda_events.is_reached_at_once(self._last_backward)
            self._device_was_idle.append(was_idle)

    def step_end(self) -> None:
        self._mark(time.perf_counter())
        if self._last_backward is not None:
            self._backward_events.append(self._last_backward)
        self._data_seconds.append(self._data_wait)
        self._data_wait = 0.0
        self._micro_batches_so_far.append(len(self._micro_batches))

    def are_enough(self, warmup_steps: int, total_steps: int, relative_error: float) -> bool:
        """Whether no further step is worth its time (``steady_state.are_enough``). False with
        ``relative_error`` 0. On a GPU the last step counts only if its backward pass has ended
        already, so that the loop may run ahead of the GPU, as it does without measurement."""
        finished = len(self._data_seconds)
        fewest = warmup_steps + (self.ragged.distinct if self.ragged else 1)
        if relative_error == 0 or finished < fewest:
            return False
        limit = total_steps - warmup_steps
        if not self._backward_events:
            seconds = self._at_mean(_differences(self._marks), warmup_steps)
            if sum(seconds) < MIN_SECONDS:
                return False
            return are_enough(seconds, relative_error, limit, host_bound_share=0.0)
        # If the GPU is still in the last step's backward pass, the steps before it decide.
        if not self._backward_events[-1].query():
            finished -= 1
        if finished < fewest:
            return False
        seconds = self._device_seconds_so_far(warmup_steps, finished)
        if self.ragged is not None:
            seconds = self.ragged.at_mean(seconds, warmup_steps)
        host_bound_share = self._host_bound_share(warmup_steps) or 0.0
        return are_enough(seconds, relative_error, limit, host_bound_share)

    def _device_seconds_so_far(self, first_step: int, finished: int) -> list[float]:
        """Seconds of some steps on a GPU. Waits for their last backward pass, not its optimizer."""
        self._backward_events[finished - 1].synchronize()
        # The last step has no end yet, because its optimizer may still run. So it is measured from
        # the backward pass before it to its own, as if both optimizer calls took equally long.
        seconds = cuda_events.seconds_between(self._events[first_step:finished])
        seconds += cuda_events.seconds_between(self._backward_events[:finished][-2:])
        return seconds

    def close(self, warmup_steps: int, relative_error: float) -> tuple[float, float]:
        """Decide which steps count; returns when the first of them began and the last ended. With a
        ``relative_error`` the first is the first steady one. Waits for the device."""
        seconds = self._step_seconds()
        comparable = self._at_mean(seconds, warmup_steps)
        self._first_counted = warmup_steps + steady_from(comparable, relative_error)
        end = self._marks[-1]
        if self._events:
            # Reading the device's seconds has waited for the device, so the last step ends now.
            end = time.perf_counter()
        return end - sum(seconds[self._first_counted :]), end

    def series(self) -> Mapping[str, list[float]]:
        """Steps' seconds by the host, of the data wait, by the device, which this waits for."""
        series = {"step_seconds": _differences(self._marks), "data_seconds": self._data_seconds}
        if self._events:
            import torch

            torch.cuda.synchronize()
            series["device_seconds"] = cuda_events.seconds_between(self._events)
        return series

    def measurements(self) -> Mapping[str, Any]:
        """The first step's time; all columns once ``close`` has decided which steps count."""
        seconds = self._step_seconds()
        values: dict[str, Any] = {}
        if seconds:
            values["first_step_seconds"] = seconds[0]
        if (first := self._first_counted) is None:
            return values
        known = self._at_mean(seconds, first)
        new_shapes, half_width = self.ragged.new_shapes(seconds) if self.ragged else (0.0, 0.0)
        counted = [step + new_shapes for step in known]
        mean = statistics.fmean(counted)
        values |= {
            "steps_counted": len(counted),
            "warmup_steps": first,
            "counted_seconds": sum(seconds[first:]),
            "step_seconds_median": statistics.median(counted),
            "data_seconds_median": statistics.median(self._data_seconds[first:]),
            # A value and its inverse have nearly the same relative error, if it is small.
            "samples_per_second_ci95": math.hypot(mean_step_error(counted), half_width / mean),
            **self._rates(first, sum(counted)),
        }
        # A whole epoch has met its lengths as they came.
        if self.ragged is not None and self.ragged.distinct:
            values["new_shapes_share"] = new_shapes / mean
        if (share := self._host_bound_share(first)) is not None:
            values["host_bound_share"] = share
        return values

    def _rates(self, first: int, seconds: float) -> dict[str, Any]:
        """Throughput of the counted steps, or what is expected of as many mean steps."""
        first_micro_batch = self._first_micro_batch(first)
        if self.ragged is None:
            return self._micro_batches.rates(first_micro_batch, seconds)
        counted = len(self._data_seconds) - first
        expected = self.ragged.expected(first, counted)
        return self._micro_batches.rates(first_micro_batch, seconds, expected)

    def _at_mean(self, seconds: Sequence[float], first: int) -> list[float]:
        """Of all steps' seconds, those from ``first`` on, as if each were an epoch's mean step."""
        later = list(seconds[first:])
        return later if self.ragged is None else self.ragged.at_mean(later, first)

    def _step_seconds(self) -> list[float]:
        """Seconds of every step: on a GPU the device's, since the host only issues steps."""
        series = self.series()
        return series.get("device_seconds", series["step_seconds"])

    def _first_micro_batch(self, step: int) -> int:
        return self._micro_batches_so_far[step - 1] if step else 0

    def _host_bound_share(self, first_step: int) -> float | None:
        """``host_bound_share`` over the steps from ``first_step`` on; None on a CPU."""
        was_idle = self._device_was_idle[self._first_micro_batch(first_step) :]
        return sum(was_idle) / len(was_idle) if was_idle else None

    def _mark(self, seconds: float) -> None:
        import torch

        self._marks.append(seconds)
        if torch.cuda.is_initialized():
            self._events.append(cuda_events.recorded())


def _differences(marks: Sequence[float]) -> list[float]:
    return [end - begin for begin, end in itertools.pairwise(marks)]
