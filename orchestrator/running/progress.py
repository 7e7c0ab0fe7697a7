"""What is printed while a sweep runs: one line a trial, which reads as well in a log as in a terminal."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TextIO

from jobs.record import Outcome, TrialRecord
from jobs.spec import Choice, TrialSpec
from orchestrator.units import memory

_FEW_AXES = 5
_NOWHERE = object()
_WORDS = {
    Outcome.OK: "ok",
    Outcome.OUT_OF_MEMORY: "OOM",
    Outcome.HOST_OUT_OF_MEMORY: "host OOM",
    Outcome.TIMED_OUT: "timed out",
    Outcome.CRASHED: "crashed",
    Outcome.FAILED: "FAILED",
    Outcome.UNSUPPORTED: "n/a",
    Outcome.SKIPPED: "skipped",
}


class Progress:
    """Counts, current best, time left and slot time spent, after every trial. ``planned`` is None for a search that
    makes its trials as it goes."""

    def __init__(
        self,
        planned: int | None,
        slots: int,
        axes: tuple[str, ...],
        *,
        baseline: Mapping[str, Choice] | None = None,
        stream: TextIO = sys.stdout,
        clock: Callable[[], float] = time.monotonic,
        began: float | None = None,
    ) -> None:
        self._planned = planned
        self._slots = max(slots, 1)
        self._axes = axes
        self._baseline = baseline if baseline and len(axes) > _FEW_AXES else {}
        self._stream = stream
        self._clock = clock
        self._begin = clock() if began is None else began
        self._counts: Counter[Outcome] = Counter()
        self._measured = 0
        self._busy_seconds = 0.0
        self._best: TrialRecord | None = None

    def say(self, text: str) -> None:
        """A line of its own. Nobody has to listen: a sweep is not ended by the ``head`` that it is piped into."""
        with contextlib.suppress(BrokenPipeError):
            print(text, file=self._stream, flush=True)

    def settled(self, record: TrialRecord) -> None:
        """A row without a slot's work: kept from an earlier run, or of a trial that will not run."""
        if record.spec.follow_up is None:
            self._count(record)

    def met(self, record: TrialRecord) -> None:
        """A trial that had come to an end before anybody looked: no line."""
        if record.spec.follow_up is not None:
            return
        self._count(record)
        self._measured += 1
        self._busy_seconds += record.slot_seconds

    def ended(self, record: TrialRecord) -> None:
        """A trial has come to an end: print its line."""
        self.met(record)
        done, again = sum(self._counts.values()), record.spec.follow_up is not None
        counted = (
            f"{done:>{len(str(self._planned))}}/{self._planned}" if self._planned else str(done)
        )
        place = _again(record.spec) if again else counted
        self.say(
            "  ".join(
                [
                    f"[{place}]",
                    f"{_WORDS[record.outcome]:<9}",
                    self._label(record.spec),
                    _result(record),
                ]
            )
        )
        if not again and done % 10 == 0 and self._planned and done < self._planned:
            self.say(self.status())

    def status(self) -> str:
        """Where the sweep stands, in one line."""
        done = sum(self._counts.values())
        counts = ", ".join(
            f"{count} {_WORDS[outcome]}" for outcome, count in self._counts.most_common()
        )
        parts = [
            f"{done} of {self._planned} done ({counts})"
            if self._planned
            else f"{done} done ({counts})"
        ]
        if self._best is not None:
            parts.append(
                f"fastest {_rate(self._best.measurements['samples_per_second'])}/s: {self._label(self._best.spec)}"
            )
        parts.append(f"slot time {_clock_text(self._busy_seconds)}")
        if self._measured and self._planned and done < self._planned:
            pace = (self._clock() - self._begin) / self._measured
            parts.append(f"about {_clock_text(pace * (self._planned - done))} left")
        return "-- " + " | ".join(parts)

    def _count(self, record: TrialRecord) -> None:
        self._counts[record.outcome] += 1
        speed = record.measurements.get("samples_per_second")
        best = self._best.measurements["samples_per_second"] if self._best else 0.0
        if record.outcome is Outcome.OK and speed and speed > best:
            self._best = record

    def _label(self, spec: TrialSpec) -> str:
        """Few axes: all of them; many: those on which the trial departs from the baseline."""
        chosen = {axis: spec.choices[axis] for axis in self._axes if axis in spec.choices}
        words = [
            f"{axis}={value}"
            for axis, value in chosen.items()
            if value != self._baseline.get(axis, _NOWHERE)
        ]
        words += [f"repeat={spec.repeat}"] if spec.repeat else []
        return " ".join(
            [
                " ".join(words) or "the baseline",
                *([f"on {spec.gpu_model}"] if spec.gpu_model else []),
            ]
        )


def _result(record: TrialRecord) -> str:
    if record.outcome is not Outcome.OK:
        return record.reason[:160]
    measured = record.measurements
    device = measured.get("device_peak_bytes")
    peak = memory(device if device is not None else measured.get("peak_allocated_bytes"))
    return (
        f"{_rate(measured['samples_per_second'])} samples/s  {peak}  ({record.slot_seconds:.1f} s)"
    )


def _again(spec: TrialSpec) -> str:
    """Why a trial that follows up another is run."""
    if spec.follow_up and spec.follow_up.among:
        return f"turn {spec.follow_up.turn + 1}"
    return f"under {memory(spec.measure.cap.device_bytes)}" if spec.measure.cap else spec.purpose


def _rate(per_second: float) -> str:
    return f"{per_second:.1f}" if per_second >= 10 else f"{per_second:.3g}"


def _clock_text(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}m{seconds:02d}s"
