"""One sweep: its search, time budget, records and progress brought together; knows no Ray."""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec
from orchestrator.running.event_log import Watcher
from orchestrator.running.progress import Progress
from orchestrator.search.base import Search
from orchestrator.storage.run_folder import RunFolder, RunFolderError

_REPEATED = frozenset(
    {
        Outcome.SKIPPED,
        Outcome.CRASHED,
        Outcome.FAILED,
        Outcome.TIMED_OUT,
        Outcome.HOST_OUT_OF_MEMORY,
    }
)
"""Outcomes that a second run tries again; a resumed run repeats only what was skipped."""


class Session:
    """Answers for the one-row-a-trial promise: whatever was planned ends in exactly one record."""

    def __init__(
        self,
        search: Search,
        folder: RunFolder,
        progress: Progress,
        *,
        time_budget_seconds: float | None,
        watchers: Sequence[Watcher] = (),
        may_begin_anew: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.search = search
        self._ends_at = (
            float("inf") if time_budget_seconds is None else clock() + time_budget_seconds
        )
        self._folder = folder
        self._progress = progress
        self._watchers = watchers
        self._may_begin_anew = may_begin_anew
        self._clock = clock
        self._out: dict[str, TrialSpec] = {}
        self._begun: set[str] = set()
        self._held: TrialSpec | None = None
        self._returned: deque[tuple[TrialSpec, ...]] = deque()
        self._closing = ""
        self._unwritten: list[TrialRecord] = []
        self._trouble: RunFolderError | None = None
        self._earlier: dict[str, TrialRecord] = {}
        self._kept: dict[str, TrialRecord] = {}
        self.reused = 0
        """Trials whose earlier record was kept."""

    def reuse(
        self,
        earlier: Mapping[str, TrialRecord],
        environments: Iterable[Mapping[str, Any]],
        *,
        resume: bool,
    ) -> int:
        """Tell the search of records that need not be repeated; returns how many it had planned.

        Only rows measured in one of ``environments`` count. A resumed run keeps every final outcome; a second run
        keeps what was decided by the trial itself (ok, out of memory, unsupported). A search that makes its trials
        as it goes is told of a record when it asks for its trial.
        """
        alike: list[Mapping[str, Any]] = []
        for environment in environments:
            if environment not in alike:
                alike.append(environment)
        for trial_id, record in earlier.items():
            if record.environment not in alike or not record.outcome.is_final:
                continue
            if not resume and record.outcome in _REPEATED:
                self._earlier[trial_id] = (
                    record  # still the best that is known, if its turn does not come
                )
            else:
                self._kept[trial_id] = record
        for planned in list(self.search.unasked()):
            self._keep(planned.trial_id)
        return self.reused

    def _keep(self, trial_id: str) -> bool:
        """Whether a trial's earlier record is kept in its place; the search is told then."""
        record = self._kept.pop(trial_id, None)
        if record is None:
            return False
        self.search.tell(record)
        self._settle(record)
        self.reused += 1
        return True

    def next_trial(self) -> TrialSpec | None:
        """The next trial to start; None when there is none now (see ``finished``)."""
        if self._closing:
            return None
        if self.seconds_left() <= 0:
            self.close("time_budget")
            return None
        while (spec := self.search.ask()) is not None:
            if not self._keep(spec.trial_id):
                self._out[spec.trial_id] = spec
                return spec
        return None

    def next_trials(self) -> tuple[TrialSpec, ...]:
        """What one slot is to run next, one after another: a trial, or all turns of a comparison."""
        if self._returned and not self._closing:
            return self._returned.popleft()
        first = self._held or self.next_trial()
        self._held = None
        if first is None or self._closing:
            return ()
        series = [first]
        while first.follow_up and first.follow_up.among and (spec := self.next_trial()) is not None:
            if spec.follow_up is None or spec.follow_up.among != first.follow_up.among:
                self._held = spec
                break
            series.append(spec)
        return tuple(series)

    def begins(self, specs: Sequence[TrialSpec]) -> tuple[TrialSpec, ...]:
        """A slot is there for what was to be next; returns what it runs: the search may know better by now, and nothing
        new begins once the sweep ends. A trial that a lost slot had begun is begun again."""
        is_new = self._begun.isdisjoint(spec.trial_id for spec in specs)
        if is_new and self.seconds_left() <= 0:
            self.close("time_budget")
        if is_new and self._closing:
            return ()
        if is_new and len(specs) == 1:
            self._out.pop(specs[0].trial_id, None)
            chosen = self.search.reconsider(specs[0])
            specs = () if chosen is None else (chosen,)
        for spec in specs:
            self._out[spec.trial_id] = spec
            self._begun.add(spec.trial_id)
            for watcher in self._watchers:
                watcher.started(spec)
        return tuple(specs)

    @property
    def running(self) -> Collection[str]:
        """The ids of the trials that were started and have not ended."""
        return self._out.keys()

    @property
    def models_out(self) -> set[str]:
        """The GPU models that they are for."""
        return {spec.gpu_model for spec in self._out.values()}

    @property
    def finished(self) -> bool:
        """No further trial will be started. While one is out it may be, for it may be given back."""
        return bool(self._closing) or (self.search.exhausted and not self._out)

    @property
    def cut_short(self) -> bool:
        """It ended, or ends, before its search."""
        return bool(self._closing)

    @property
    def begins_anew(self) -> bool:
        """It ends for another to go on with GPUs that have joined."""
        return self._closing == "joined"

    @property
    def interrupted(self) -> bool:
        """Somebody pressed Ctrl-C."""
        return self._closing == "interrupted"

    def seconds_left(self) -> float:
        """Seconds until the time budget ends; infinite without one."""
        return self._ends_at - self._clock()

    def close(self, rule: str) -> None:
        """Start nothing more; what is running may finish. What ends a sweep also ends one that was to begin anew."""
        if not self._closing or self.begins_anew:
            self._closing = rule

    def interrupt(self) -> None:
        """Somebody pressed Ctrl-C."""
        self.close("interrupted")
        self._progress.say(
            f"-- interrupted: finishing {self._on_slots()} running trials; press again to give them up"
        )

    def begin_anew(self) -> None:
        """GPUs have joined for which nothing is planned; does nothing where nobody could go on with them."""
        if self._may_begin_anew and not self._closing:
            self.close("joined")
            self.say(
                f"GPUs have joined: finishing {self._on_slots()} running trials, then going on with all"
            )

    def say(self, text: str) -> None:
        """Something about the sweep that its person should know."""
        self._progress.say(f"-- {text}")

    def returned(self, specs: Sequence[TrialSpec]) -> None:
        """A slot gives trials back that it cannot run; they are the next to be started."""
        if specs:
            self._returned.append(tuple(specs))

    def ended(self, record: TrialRecord) -> None:
        """A trial that was started has come to an end."""
        self._out.pop(record.trial_id, None)
        if self._cut_by_budget(record):
            reason = f"the sweep's time budget ended while the trial was in phase {record.phase or 'start'}"
            record = dataclasses.replace(
                record, outcome=Outcome.SKIPPED, rule="time_budget", reason=reason
            )
        try:
            record = self._folder.write(record)
        except RunFolderError as error:  # raised here it would end in Tune's traceback
            self._unwritten.append(record)
            self._trouble = error
            self.close("unwritable")
            self._progress.say(f"-- {error}; nothing new is started")
        self.search.tell(record)
        self._progress.ended(record)
        for watcher in self._watchers:
            watcher.ended(record, measured=True)

    def account(self) -> None:
        """Give every planned trial that has no record yet its row: skipped, with the rule and the reason.

        A session that begins anew leaves them to the next, and what it was to measure again too. Raises RunFolderError
        where the folder could not be written, now or before: there may be room again by now.
        """
        while self._unwritten:
            self._folder.write(self._unwritten[-1])
            self._unwritten.pop()
        if self.begins_anew:
            for spec in (*self._out.values(), *self.search.unasked()):
                self._folder.remove(spec.trial_id)
            return
        for record in self.search.skipped():
            self._folder.write(record)
            self._settle(record)
        reason = {
            "time_budget": "the sweep's time budget ended before the trial's turn came",
            "interrupted": "the sweep was interrupted before the trial's turn came",
            "no_nodes": "no node was left before the trial's turn came",
            "unwritable": "the run folder could not be written before the trial's turn came",
        }.get(self._closing, "the sweep ended before the trial's turn came")
        for spec in (*self._out.values(), *self.search.unasked()):
            if (known := self._earlier.get(spec.trial_id)) is not None:
                self._settle(known)
                continue
            record = TrialRecord(
                spec=spec, outcome=Outcome.SKIPPED, rule=self._closing or "ended", reason=reason
            )
            self._folder.write(record)
            self._settle(record)
        if self._trouble is not None:
            raise self._trouble

    def _on_slots(self) -> int:
        """How many trials are; the others that are out wait for one."""
        return len(self._begun & self._out.keys())

    def _settle(self, record: TrialRecord) -> None:
        """A row without a slot's work."""
        self._progress.settled(record)
        for watcher in self._watchers:
            watcher.ended(record, measured=False)

    def _cut_by_budget(self, record: TrialRecord) -> bool:
        """Timed out before its own deadline: it was the sweep's budget that ended."""
        timed_out = record.outcome is Outcome.TIMED_OUT
        return timed_out and record.slot_seconds < 0.95 * record.spec.measure.timeout_seconds
