"""What is printed while a sweep runs: a line per trial, and a last line of what runs now."""

import contextlib
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.text import Text

from jobs.record import Outcome, TrialRecord
from jobs.spec import Purpose, TrialSpec
from jobs.techniques.sample_kind import Workload, workload_of
from orchestrator.analysis.configuration import gpu_memory
from orchestrator.labels import trial_label
from orchestrator.reporting.terminal.safe_text import raw_stream, shortened, visible
from orchestrator.running.observers import Observer
from orchestrator.units import duration, memory, number

_STATUS_EVERY = 10
"""Number of trials between two status lines."""
_REASON_CHARACTERS = 160
_OUTCOME_WORDS = {
    Outcome.OK: "ok",
    Outcome.OUT_OF_MEMORY: "OOM",
    Outcome.HOST_OUT_OF_MEMORY: "host OOM",
    Outcome.TIMED_OUT: "timed out",
    Outcome.CRASHED: "crashed",
    Outcome.FAILED: "FAILED",
    Outcome.UNSUPPORTED: "n/a",
    Outcome.SKIPPED: "skipped",
}


class Progress(Observer):
    """Prints every trial, with a label of ``axes``, and counts them. ``planned`` is None for a
    search that creates its trials while it runs. The sweep ``began`` by ``clock``; None: now."""

    def __init__(
        self,
        planned: int | None,
        axes: Sequence[str],
        *,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        began: float | None = None,
    ) -> None:
        self._planned = planned
        self._axes = tuple(axes)
        self.stream = stream or sys.stdout
        self._clock = clock
        self._began = clock() if began is None else began
        self._counts: Counter[Outcome] = Counter()
        self._running: dict[str, tuple[TrialSpec, float]] = {}
        """Trial -> its spec, and when it began by the clock."""
        self._measured = 0
        self._slot_seconds = 0.0
        self._fastest: TrialRecord | None = None
        self._workloads: set[Workload] = set()
        """Workloads of the trials so far. With several, no trial is shown as the fastest."""

    def started(self, spec: TrialSpec) -> None:
        self._running[spec.trial_id] = (spec, self._clock())

    def ended(self, record: TrialRecord, *, measured: bool) -> None:
        """Count a trial, and print its line if it ran now. Follow-ups are printed, not counted."""
        self._running.pop(record.trial_id, None)
        self.count(record, measured=measured)
        if not measured:
            return
        self.print(self._line(record))
        done = self._counts.total()
        is_counted = record.spec.follow_up is None
        if is_counted and done % _STATUS_EVERY == 0 and self._planned and done < self._planned:
            self.print(self.status())

    def message(self, text: str) -> None:
        self.print(f"-- {text}")

    def closed(self) -> None:
        self.print(self.status())

    def count(self, record: TrialRecord, *, measured: bool) -> None:
        """Count a trial without printing it. ``measured``: it took slot time in this sweep."""
        if record.spec.follow_up is not None:
            return
        self._counts[record.outcome] += 1
        self._workloads.add(workload_of(record.spec.training_recipe))
        if record.outcome is Outcome.OK and _speed(record) > _speed(self._fastest):
            self._fastest = record
        if measured:
            self._measured += 1
            self._slot_seconds += record.slot_seconds

    def print(self, text: str) -> None:
        """Print a line. A closed pipe (``| head``) does not end the sweep."""
        with contextlib.suppress(BrokenPipeError):
            print(visible(text), file=self.stream, flush=True)

    def status(self) -> str:
        """The status of the sweep, in one line."""
        counts = self._counts.most_common()
        counted = ", ".join(f"{amount} {_OUTCOME_WORDS[outcome]}" for outcome, amount in counts)
        of_planned = f" of {self._planned}" if self._planned else ""
        parts = [f"{self._counts.total()}{of_planned} done ({counted})"]
        if self._fastest is not None and len(self._workloads) == 1:
            label = trial_label(self._fastest.spec, self._axes)
            parts.append(f"fastest {number(_speed(self._fastest))} samples/s: {label}")
        parts.append(f"slot time {duration(self._slot_seconds)}")
        seconds_left = self._seconds_left()
        if seconds_left is not None:
            parts.append(f"about {duration(seconds_left)} left")
        return "-- " + " | ".join(parts)

    def now(self) -> str:
        """What runs and for how long, and how long the rest may take: a line that soon is old."""
        done = str(self._counts.total()) + (f"/{self._planned}" if self._planned else "")
        parts = [f"{done} done"]
        for spec, began in list(self._running.values()):
            purpose = f"{self._position(spec)}, " if spec.follow_up is not None else ""
            seconds = duration(self._clock() - began)
            parts.append(f"{purpose}{trial_label(spec, self._axes)}: {seconds}")
        if not self._running:
            parts.append("no trial runs")
        seconds_left = self._seconds_left()
        if seconds_left is not None:
            parts.append(f"about {duration(seconds_left)} left")
        return " | ".join(parts)

    def _seconds_left(self) -> float | None:
        done = self._counts.total()
        if not self._measured or not self._planned or done >= self._planned:
            return None
        # Seconds of wall time per measured trial: several slots make the pace faster.
        pace = (self._clock() - self._began) / self._measured
        return pace * (self._planned - done)

    def _line(self, record: TrialRecord) -> str:
        label = trial_label(record.spec, self._axes)
        outcome = f"{_OUTCOME_WORDS[record.outcome]:<9}"
        position = f"[{self._position(record.spec)}]"
        return "  ".join(filter(None, (position, outcome, label, _result(record), record.trial_id)))

    def _position(self, spec: TrialSpec) -> str:
        """``12/24``, or what a follow-up is run for."""
        if spec.follow_up is None:
            done, planned = str(self._counts.total()), str(self._planned or "")
            return f"{done:>{len(planned)}}/{planned}" if planned else done
        if spec.purpose is Purpose.TIE_BREAK:
            return f"round {spec.follow_up.round + 1}"
        if spec.measure.memory_cap is not None:
            return f"cap {memory(spec.measure.memory_cap.device_bytes)}"
        return spec.purpose.value


def _speed(record: TrialRecord | None) -> float:
    return float((record and record.measurements.get("samples_per_second")) or 0.0)


def _result(record: TrialRecord) -> str:
    if record.outcome is not Outcome.OK:
        return shortened(record.reason, _REASON_CHARACTERS)
    measured = record.measurements
    size = memory(gpu_memory(measured))
    if measured.get("epoch_growth_bytes"):
        size += " in an epoch"
    return f"{number(_speed(record))} samples/s  {size}  ({record.slot_seconds:.1f} s)"


class _LiveLine:
    """The line, which rich asks for again and again. Nothing of it reaches a file."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def __rich__(self) -> Text:
        return Text(visible(self._progress.now()), no_wrap=True, overflow="ellipsis")


@contextmanager
def live_line(progress: Progress) -> Iterator[None]:
    """Show the line below what ``progress`` prints, if that goes to a terminal."""
    plain = progress.stream
    console = Console(file=raw_stream(plain))
    if console.is_jupyter or not console.is_terminal:
        yield
        return
    name = "stderr" if plain is sys.stderr else "stdout"
    # Once a second: drawing takes time of the processor that trials are measured on.
    with console.status(_LiveLine(progress), refresh_per_second=1):
        # If Ray is lost, this process ends at once, and would leave the cursor hidden.
        console.show_cursor(True)
        # rich has replaced the streams, to keep its line below the others.
        progress.stream = getattr(sys, name)
        try:
            yield
        finally:
            progress.stream = plain
