"""Steps: seconds of every optimizer step, data loading separated, and the rates over the counted ones."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from jobs.record import Column
from jobs.steady import relative_half_width
from jobs.trackers.base import Moment, Tracker
from jobs.trackers.buffer import DeviceSeries

if TYPE_CHECKING:
    import torch


class Steps(Tracker):
    """Rates are totals over the counted steps between two waits for the device, never a mean of step rates.

    ::

        step k-1 │ data wait │ forward backward … optimizer │ step k+1
                 ├──────────── step_seconds ────────────────┤  wall clock between step ends
                 ├──────────── device_seconds ──────────────┤  CUDA events at the same places
    """

    columns: ClassVar = (
        Column(name="steps_counted", type="int64", doc="optimizer steps measured after the warm-up"),
        Column(name="warmup_steps", type="int64", doc="optimizer steps before the counted ones"),
        Column(name="samples_per_second", type="float64", unit="1/s", doc="samples trained over the counted time"),
        Column(name="tokens_per_second", type="float64", unit="1/s", doc="tokens, padding included"),
        Column(name="real_tokens_per_second", type="float64", unit="1/s", doc="tokens without padding"),
        Column(name="step_seconds_median", type="float64", unit="s", doc="median counted step, data loading included"),
        Column(name="step_seconds_iqr", type="float64", unit="s", doc="interquartile range of the counted steps"),
        Column(name="data_seconds_median", type="float64", unit="s", doc="median wait for data of a counted step"),
        Column(name="first_step_seconds", type="float64", unit="s", doc="first step: lazy loading, compiling, tuning"),
        Column(
            name="samples_per_second_error",
            type="float64",
            doc="half the 95 % confidence interval of the mean counted step, relative to it",
        ),
        Column(
            name="host_bound_share",
            type="float64",
            doc="share of the micro-batches after whose last launch the GPU had nothing left to do",
        ),
        Column(name="counted_seconds", type="float64", unit="s", doc="wall-clock of all counted steps together"),
    )

    def __init__(self) -> None:
        self._marks: list[float] = []
        self._events: list[torch.cuda.Event] = []
        self._data: list[float] = []
        self._waited = 0.0
        self._dry: list[bool] = []
        self._samples: list[int] = []
        self._tokens: list[int] = []
        self._first_micro_batch: list[int] = []
        self._real = DeviceSeries(integers=True)
        self._counted: dict[Moment, tuple[float, int]] = {}

    def at(self, moment: Moment, seconds: float) -> None:
        if moment is Moment.TRAIN_BEGIN:
            self._mark(seconds)
        elif moment in (Moment.COUNTED_BEGIN, Moment.COUNTED_END):
            self._counted[moment] = (seconds, len(self._data))

    def data_wait(self, seconds: float) -> None:
        self._waited += seconds

    def micro_batch(self, inputs: Mapping[str, Any]) -> None:
        self._samples.append(next(len(value) for value in inputs.values() if getattr(value, "ndim", 0)))
        self._tokens.append(inputs["input_ids"].numel() if "input_ids" in inputs else 0)
        if (mask := inputs.get("attention_mask")) is not None:
            self._real.append(mask.sum())

    def loss(self, value: torch.Tensor) -> None:
        if value.is_cuda:
            self._dry.append(_has_run_dry())

    def counted_so_far(self) -> list[float]:
        """Seconds of the counted steps that the device has finished; asks, but does not wait."""
        if Moment.COUNTED_BEGIN not in self._counted:
            return []
        first = self._counted[Moment.COUNTED_BEGIN][1]
        if not self._events:
            return _differences(self._marks[first:])
        done = [event for event in self._events[first:] if event.query()]
        return [begin.elapsed_time(end) / 1000 for begin, end in itertools.pairwise(done)]

    def step_end(self) -> None:
        self._mark(time.perf_counter())
        self._data.append(self._waited)
        self._waited = 0.0
        self._first_micro_batch.append(len(self._samples))

    def series(self) -> Mapping[str, list[float]]:
        series = {"step_seconds": _differences(self._marks), "data_seconds": self._data}
        if self._events:
            import torch

            torch.cuda.synchronize()
            pairs = itertools.pairwise(self._events)
            series["device_seconds"] = [begin.elapsed_time(end) / 1000 for begin, end in pairs]
        return series

    def measurements(self) -> Mapping[str, Any]:
        series = self.series()
        # On a GPU the wall clock sees when a step was issued, the events when it was done.
        seconds = series.get("device_seconds", series["step_seconds"])
        values: dict[str, Any] = {"first_step_seconds": seconds[0]} if seconds else {}
        if len(self._counted) < 2:
            return values
        (begin, first), (end, last) = self._counted[Moment.COUNTED_BEGIN], self._counted[Moment.COUNTED_END]
        counted, elapsed = seconds[first:last], end - begin
        quartiles = statistics.quantiles(counted, n=4) if len(counted) > 1 else [counted[0]] * 3
        micro = slice(self._first_micro_batch[first - 1] if first else 0, self._first_micro_batch[last - 1])
        tokens = sum(self._tokens[micro])
        real = sum(self._real.values()[micro]) if len(self._real) else tokens
        values |= {
            "steps_counted": last - first,
            "warmup_steps": first,
            "samples_per_second": sum(self._samples[micro]) / elapsed,
            "step_seconds_median": statistics.median(counted),
            "step_seconds_iqr": quartiles[2] - quartiles[0],
            "data_seconds_median": statistics.median(self._data[first:last]),
            "samples_per_second_error": relative_half_width(counted),
            "counted_seconds": elapsed,
        }
        if dry := self._dry[micro]:
            values["host_bound_share"] = sum(dry) / len(dry)
        if tokens:
            values |= {"tokens_per_second": tokens / elapsed, "real_tokens_per_second": real / elapsed}
        return values

    def _mark(self, seconds: float) -> None:
        import torch

        self._marks.append(seconds)
        if torch.cuda.is_initialized():
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._events.append(event)


_DRY_SECONDS = 200e-6


def _has_run_dry() -> bool:
    """Whether the device finishes an event within microseconds of its launch: it was waiting for the host."""
    import torch

    event = torch.cuda.Event()
    event.record()
    give_up = time.perf_counter() + _DRY_SECONDS
    while not (done := event.query()) and time.perf_counter() < give_up:
        pass
    return bool(done)


def _differences(marks: list[float]) -> list[float]:
    return [end - begin for begin, end in itertools.pairwise(marks)]
