"""The time of every optimizer step, its wait for data, and the rates over the counted steps."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from jobs.record import Column
from jobs.steady_state import are_enough, mean_step_error, steady_from
from jobs.trackers.base import Moment, Tracker
from jobs.trackers.sources import cuda_events
from jobs.trackers.sources.device_series import DeviceSeries

if TYPE_CHECKING:
    import torch

_IDLE_LAG_SECONDS = 200e-6
"""An event that the device reaches within this time of its launch: the device was idle."""


class Steps(Tracker):
    """Rates are totals over the counted steps, never means of step rates.

    ::

        step k-1 │ data wait │ forward backward … optimizer │ step k+1
                 ├──────────── step_seconds ────────────────┤  host clock between step ends
                 ├──────────── device_seconds ──────────────┤  CUDA events at the same points

    The counted steps begin where the device, not the host, ended the last uncounted one. So the
    device is never synchronised in between: an empty queue would make the next step slower.
    """

    columns: ClassVar = (
        Column("steps_counted", "int64", "Optimizer steps that the rates are computed from"),
        Column(
            "warmup_steps",
            "int64",
            "Optimizer steps before the counted ones: warm-up, and steps that were not steady yet",
        ),
        Column(
            "samples_per_second",
            "float64",
            "Throughput: samples trained on per second of counted time",
            unit="1/s",
        ),
        Column(
            "tokens_per_second",
            "float64",
            "Tokens trained on per second of counted time, padding included",
            unit="1/s",
        ),
        Column(
            "real_tokens_per_second",
            "float64",
            "Tokens trained on per second of counted time, without padding",
            unit="1/s",
        ),
        Column(
            "step_seconds_median",
            "float64",
            "Median time of a counted step, data loading included",
            unit="s",
        ),
        Column(
            "step_seconds_iqr",
            "float64",
            "Interquartile range of the times of the counted steps",
            unit="s",
        ),
        Column(
            "data_seconds_median",
            "float64",
            "Median wait of a counted step for its data",
            unit="s",
        ),
        Column(
            "first_step_seconds",
            "float64",
            "Time of the first step, with lazy loading, compiling and tuning",
            unit="s",
        ),
        Column(
            "samples_per_second_ci95",
            "float64",
            "Half the 95 % confidence interval of the mean counted step, relative to it; combines "
            "the spread of these steps with the usual spread of a trial",
        ),
        Column(
            "host_bound_share",
            "float64",
            "Share of the micro-batches after whose last kernel launch the GPU had nothing left "
            "to do",
        ),
        Column("counted_seconds", "float64", "Total time of the counted steps", unit="s"),
    )

    def __init__(self) -> None:
        # One entry per step end, and one for the beginning of training.
        self._marks: list[float] = []
        self._events: list[torch.cuda.Event] = []
        # One entry per step.
        self._data_seconds: list[float] = []
        self._backward_events: list[torch.cuda.Event] = []
        """Behind the last backward pass of each step."""
        self._first_micro_batch: list[int] = []
        """Of the step after each step."""
        # One entry per micro-batch.
        self._samples: list[int] = []
        self._tokens: list[int] = []
        self._real_tokens = DeviceSeries(integers=True)
        self._device_was_idle: list[bool] = []
        # Of the current step.
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
        self._samples.append(_samples_in(inputs))
        self._tokens.append(inputs["input_ids"].numel() if "input_ids" in inputs else 0)
        mask = inputs.get("attention_mask")
        if mask is not None:
            self._real_tokens.append(mask.sum())

    def loss(self, value: torch.Tensor) -> None:
        if value.is_cuda:
            self._last_backward = cuda_events.recorded()
            self._device_was_idle.append(_is_reached_at_once(self._last_backward))

    def step_end(self) -> None:
        self._mark(time.perf_counter())
        if self._last_backward is not None:
            self._backward_events.append(self._last_backward)
        self._data_seconds.append(self._data_wait)
        self._data_wait = 0.0
        self._first_micro_batch.append(len(self._samples))

    def are_enough(self, warmup_steps: int, total_steps: int, relative_error: float) -> bool:
        """Whether no further step is worth its time (``steady_state.are_enough``).

        False with ``relative_error`` 0. On a GPU this waits for the last backward pass only if the
        loop has waited for it already. The optimizer still runs meanwhile, so it is taken to need
        as long as in the step before. If the loop has not waited, the decision is made from the
        steps before, and the loop may run ahead of the GPU as it does without measurement.
        """
        finished = len(self._data_seconds)
        if relative_error == 0 or finished <= warmup_steps:
            return False
        limit = total_steps - warmup_steps
        if not self._backward_events:
            seconds = _differences(self._marks[warmup_steps:])
            return are_enough(seconds, relative_error, limit, host_bound_share=0.0)
        if not self._backward_events[-1].query():
            finished -= 1
        if finished <= warmup_steps:
            return False
        self._backward_events[finished - 1].synchronize()
        # From step end to step end; for the last step, whose end is still to come, from backward
        # pass to backward pass.
        seconds = _device_seconds(self._events[warmup_steps:finished])
        seconds += _device_seconds(self._backward_events[:finished][-2:])
        host_bound_share = self._host_bound_share(warmup_steps) or 0.0
        return are_enough(seconds, relative_error, limit, host_bound_share)

    def close(self, warmup_steps: int, relative_error: float) -> tuple[float, float]:
        """Decide which steps count; returns when the first of them began and the last ended.

        All steps after the warm-up count; with a ``relative_error``, all from the first steady
        one on. Waits for the device.
        """
        seconds = self._step_seconds()
        self._first_counted = warmup_steps + steady_from(seconds[warmup_steps:], relative_error)
        # Reading the device's seconds has waited for it, so that the last step ends now.
        end = time.perf_counter() if self._events else self._marks[-1]
        return end - sum(seconds[self._first_counted :]), end

    def series(self) -> Mapping[str, list[float]]:
        series = {"step_seconds": _differences(self._marks), "data_seconds": self._data_seconds}
        if self._events:
            import torch

            torch.cuda.synchronize()
            series["device_seconds"] = _device_seconds(self._events)
        return series

    def measurements(self) -> Mapping[str, Any]:
        seconds = self._step_seconds()
        values: dict[str, Any] = {}
        if seconds:
            values["first_step_seconds"] = seconds[0]
        if self._first_counted is None:
            return values
        first = self._first_counted
        values |= self._times(seconds[first:], first) | self._rates(sum(seconds[first:]), first)
        share = self._host_bound_share(first)
        if share is not None:
            values["host_bound_share"] = share
        return values

    def _step_seconds(self) -> list[float]:
        """Seconds of every step: on a GPU the device's, since the host only issues steps."""
        series = self.series()
        return series.get("device_seconds", series["step_seconds"])

    def _times(self, counted: Sequence[float], first: int) -> dict[str, Any]:
        """Columns about the times of the counted steps, which begin at index ``first``."""
        return {
            "steps_counted": len(counted),
            "warmup_steps": first,
            "counted_seconds": sum(counted),
            "step_seconds_median": statistics.median(counted),
            "step_seconds_iqr": _interquartile_range(counted),
            "data_seconds_median": statistics.median(self._data_seconds[first:]),
            "samples_per_second_ci95": mean_step_error(counted),
        }

    def _rates(self, elapsed: float, first: int) -> dict[str, Any]:
        """Columns about throughput in the ``elapsed`` seconds of the counted steps."""
        counted = self._micro_batches(first)
        rates: dict[str, Any] = {"samples_per_second": sum(self._samples[counted]) / elapsed}
        tokens = sum(self._tokens[counted])
        if tokens:
            has_masks = len(self._real_tokens) > 0
            real_tokens = sum(self._real_tokens.values()[counted]) if has_masks else tokens
            rates["tokens_per_second"] = tokens / elapsed
            rates["real_tokens_per_second"] = real_tokens / elapsed
        return rates

    def _micro_batches(self, first_step: int) -> slice:
        """The micro-batches of the steps from ``first_step`` on."""
        return slice(self._first_micro_batch[first_step - 1] if first_step else 0, None)

    def _host_bound_share(self, first_step: int) -> float | None:
        """Of the micro-batches of the steps from ``first_step`` on; None on a CPU."""
        was_idle = self._device_was_idle[self._micro_batches(first_step)]
        return sum(was_idle) / len(was_idle) if was_idle else None

    def _mark(self, seconds: float) -> None:
        import torch

        self._marks.append(seconds)
        if torch.cuda.is_initialized():
            self._events.append(cuda_events.recorded())


def _samples_in(inputs: Mapping[str, Any]) -> int:
    """The batch size: the length of the first tensor that is no scalar."""
    return next(len(value) for value in inputs.values() if getattr(value, "ndim", 0))


def _is_reached_at_once(event: torch.cuda.Event) -> bool:
    """Whether the device reaches an event as soon as it is launched: it waited for the host."""
    give_up = time.perf_counter() + _IDLE_LAG_SECONDS
    while not (is_reached := event.query()) and time.perf_counter() < give_up:
        pass
    return bool(is_reached)


def _device_seconds(events: Sequence[torch.cuda.Event]) -> list[float]:
    """Seconds between successive events; CUDA counts milliseconds."""
    return [begin.elapsed_time(end) / 1000 for begin, end in itertools.pairwise(events)]


def _differences(marks: Sequence[float]) -> list[float]:
    return [end - begin for begin, end in itertools.pairwise(marks)]


def _interquartile_range(values: Sequence[float]) -> float:
    if len(values) < 2:
        return 0.0
    lower, _, upper = statistics.quantiles(values, n=4)
    return upper - lower
