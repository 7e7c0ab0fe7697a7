"""Steps: seconds of every optimizer step, data loading separated, and the rates over the counted ones."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from jobs.record import Column
from jobs.steady_state import are_enough, mean_step_error, steady_from
from jobs.trackers.base import Moment, Tracker
from jobs.trackers.sources import cuda_events as events
from jobs.trackers.sources.device_series import DeviceSeries

if TYPE_CHECKING:
    import torch


class Steps(Tracker):
    """Rates are totals over the counted steps, never a mean of step rates.

    ::

        step k-1 │ data wait │ forward backward … optimizer │ step k+1
                 ├──────────── step_seconds ────────────────┤  wall clock between step ends
                 ├──────────── device_seconds ──────────────┤  CUDA events at the same places

    The counted steps begin where the device, not the host, ended the last uncounted one, so that nobody has to wait
    for it: a drained pipeline would make the next step slower.
    """

    columns: ClassVar = (
        Column("steps_counted", "int64", "optimizer steps that the rates are made of"),
        Column(
            "warmup_steps",
            "int64",
            "optimizer steps before them: warm-up, and what was not steady yet",
        ),
        Column(
            "samples_per_second", "float64", "samples trained over the counted time", unit="1/s"
        ),
        Column("tokens_per_second", "float64", "tokens, padding included", unit="1/s"),
        Column("real_tokens_per_second", "float64", "tokens without padding", unit="1/s"),
        Column(
            "step_seconds_median", "float64", "median counted step, data loading included", unit="s"
        ),
        Column("step_seconds_iqr", "float64", "interquartile range of the counted steps", unit="s"),
        Column(
            "data_seconds_median", "float64", "median wait for data of a counted step", unit="s"
        ),
        Column(
            "first_step_seconds", "float64", "first step: lazy loading, compiling, tuning", unit="s"
        ),
        Column(
            "samples_per_second_ci95",
            "float64",
            "half the 95 % interval of the mean counted step, relative to it, with what steps usually spread by",
        ),
        Column(
            "host_bound_share",
            "float64",
            "share of the micro-batches after whose last launch the GPU had nothing left to do",
        ),
        Column("counted_seconds", "float64", "time of all counted steps together", unit="s"),
    )

    def __init__(self) -> None:
        self._marks: list[float] = []
        self._events: list[torch.cuda.Event] = []
        self._last_pass: torch.cuda.Event | None = None
        self._passes: list[torch.cuda.Event] = []
        self._data: list[float] = []
        self._waited = 0.0
        self._dry: list[bool] = []
        self._samples: list[int] = []
        self._tokens: list[int] = []
        self._first_micro_batch: list[int] = []
        self._real = DeviceSeries(integers=True)
        self._first_counted: int | None = None

    def at(self, moment: Moment, seconds: float) -> None:
        if moment is Moment.TRAIN_BEGIN:
            self._mark(seconds)

    def data_wait(self, seconds: float) -> None:
        self._waited += seconds

    def micro_batch(self, inputs: Mapping[str, Any]) -> None:
        self._samples.append(
            next(len(value) for value in inputs.values() if getattr(value, "ndim", 0))
        )
        self._tokens.append(inputs["input_ids"].numel() if "input_ids" in inputs else 0)
        if (mask := inputs.get("attention_mask")) is not None:
            self._real.append(mask.sum())

    def loss(self, value: torch.Tensor) -> None:
        if value.is_cuda:
            self._last_pass = events.recorded()
            self._dry.append(_is_soon_done(self._last_pass))

    def step_end(self) -> None:
        self._mark(time.perf_counter())
        if self._last_pass is not None:
            self._passes.append(self._last_pass)
        self._data.append(self._waited)
        self._waited = 0.0
        self._first_micro_batch.append(len(self._samples))

    def are_enough(self, warmup_steps: int, total_steps: int, relative_error: float) -> bool:
        """Whether the steps after the warm-up tell the mean step to within ``relative_error`` (0: they never do), or
        ``total_steps`` would not either, or there are some and it is the host's.

        On a GPU the last of them is looked at if its backward pass is over: the optimizer, which is taken to need as
        long as in the step before, still runs meanwhile. A loop that has not waited for that pass does not here either,
        and the step before is the last that is looked at: what a step may do ahead of the GPU, it does.
        """
        done = len(self._data)
        if relative_error == 0 or done <= warmup_steps:
            return False
        limit = total_steps - warmup_steps
        if not self._passes:
            return are_enough(_differences(self._marks[warmup_steps:]), relative_error, limit, 0.0)
        if not self._passes[-1].query():
            done -= 1
        if done <= warmup_steps:
            return False
        self._passes[done - 1].synchronize()
        seconds = [
            *_device_seconds(self._events[warmup_steps:done]),
            *_device_seconds(self._passes[:done][-2:]),
        ]
        share = self._host_bound_share(warmup_steps) or 0.0
        return are_enough(seconds, relative_error, limit, share)

    def close(self, warmup_steps: int, relative_error: float) -> tuple[float, float]:
        """Decide which steps count: when the first of them began and the last ended, by the monotonic clock.

        All after the warm-up, less what is not steady yet where an error was asked for. Waits for the device.
        """
        series = self.series()
        seconds = series.get("device_seconds", series["step_seconds"])
        first = warmup_steps + steady_from(seconds[warmup_steps:], relative_error)
        self._first_counted = first
        end = time.perf_counter() if self._events else self._marks[-1]
        return end - sum(seconds[first:]), end

    def series(self) -> Mapping[str, list[float]]:
        series = {"step_seconds": _differences(self._marks), "data_seconds": self._data}
        if self._events:
            import torch

            torch.cuda.synchronize()
            series["device_seconds"] = _device_seconds(self._events)
        return series

    def measurements(self) -> Mapping[str, Any]:
        series = self.series()
        # On a GPU the wall clock sees when a step was issued, the events when it was done.
        seconds = series.get("device_seconds", series["step_seconds"])
        values: dict[str, Any] = {"first_step_seconds": seconds[0]} if seconds else {}
        if self._first_counted is None:
            return values
        first = self._first_counted
        counted = seconds[first:]
        elapsed = sum(counted)
        quartiles = statistics.quantiles(counted, n=4) if len(counted) > 1 else [counted[0]] * 3
        micro = self._micro_batches(first)
        tokens = sum(self._tokens[micro])
        real = sum(self._real.values()[micro]) if len(self._real) else tokens
        values |= {
            "steps_counted": len(counted),
            "warmup_steps": first,
            "samples_per_second": sum(self._samples[micro]) / elapsed,
            "step_seconds_median": statistics.median(counted),
            "step_seconds_iqr": quartiles[2] - quartiles[0],
            "data_seconds_median": statistics.median(self._data[first:]),
            "samples_per_second_ci95": mean_step_error(counted),
            "counted_seconds": elapsed,
        }
        if (share := self._host_bound_share(first)) is not None:
            values["host_bound_share"] = share
        if tokens:
            values |= {
                "tokens_per_second": tokens / elapsed,
                "real_tokens_per_second": real / elapsed,
            }
        return values

    def _micro_batches(self, first_step: int) -> slice:
        """Those of the steps from this one on."""
        return slice(self._first_micro_batch[first_step - 1] if first_step else 0, None)

    def _host_bound_share(self, first_step: int) -> float | None:
        """Of the micro-batches from this step on; None where the device was not asked."""
        dry = self._dry[self._micro_batches(first_step)]
        return sum(dry) / len(dry) if dry else None

    def _mark(self, seconds: float) -> None:
        import torch

        self._marks.append(seconds)
        if torch.cuda.is_initialized():
            self._events.append(events.recorded())


_DRY_SECONDS = 200e-6


def _is_soon_done(event: torch.cuda.Event) -> bool:
    """Whether the device finishes an event within microseconds of its launch: it was waiting for the host."""
    give_up = time.perf_counter() + _DRY_SECONDS
    while not (done := event.query()) and time.perf_counter() < give_up:
        pass
    return bool(done)


def _device_seconds(events: Sequence[torch.cuda.Event]) -> list[float]:
    return [begin.elapsed_time(end) / 1000 for begin, end in itertools.pairwise(events)]


def _differences(marks: list[float]) -> list[float]:
    return [end - begin for begin, end in itertools.pairwise(marks)]
