"""One sweep: combines its search, time budget, records and observers. Does not use Ray."""

import math
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from jobs.record import TrialRecord, skipped
from jobs.spec import TrialSpec
from orchestrator.running.close_reason import CloseReason, with_limit_rule
from orchestrator.running.earlier_records import is_reusable
from orchestrator.running.observers import Observer
from orchestrator.search.base import Search
from orchestrator.search.follow_up_plan import compared_trials
from orchestrator.storage.run_folder import RunFolder, RunFolderError, RunFolderLostError
from orchestrator.units import count


class Session:
    """Makes sure that every planned trial ends with exactly one record. ``next_trials`` dispatches
    trials, ``start`` begins them when a slot is ready, ``ended`` takes their records, ``requeue``
    what a slot could not run. ``write_missing_records`` is the end."""

    def __init__(
        self,
        search: Search,
        folder: RunFolder,
        observers: Sequence[Observer] = (),
        *,
        time_budget_seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.search = search
        self._folder = folder
        self._observers = tuple(observers)
        self._clock = clock
        self._ends_at = math.inf if time_budget_seconds is None else clock() + time_budget_seconds
        self.close_reason: CloseReason | None = None
        """Why nothing more is started; None while the search goes on."""
        self.reused = 0
        """Trials whose earlier record was kept."""
        self._dispatched: dict[str, TrialSpec] = {}
        self._incomplete: list[TrialRecord] = []
        """Of trials that ended; the next trial need not wait for what the last one lacks."""
        self._started: set[str] = set()
        self._allowed_seconds: dict[str, float] = {}
        """Id of a trial that was started -> what its search allows it."""
        self._asked_ahead: TrialSpec | None = None
        """The first trial after a tie-break. It was asked for to find the end of the tie-break."""
        self._requeued: deque[tuple[TrialSpec, ...]] = deque()
        self._reusable: dict[str, TrialRecord] = {}
        self._second_best: dict[str, TrialRecord] = {}
        """Earlier records to keep only if their trial is not run again."""
        self._unwritten: list[TrialRecord] = []
        self._write_error: RunFolderError | None = None

    def reuse(
        self,
        earlier: Mapping[str, TrialRecord],
        environments: Collection[Mapping[str, Any]],
        *,
        resume: bool,
    ) -> int:
        """Tell the search of records that need not be repeated, now or when it asks for their
        trial. Returns how many it had planned."""
        for trial_id, record in earlier.items():
            if record.outcome.is_final:
                can_stay = is_reusable(record, environments, resume=resume)
                (self._reusable if can_stay else self._second_best)[trial_id] = record
        for planned in list(self.search.pending()):
            self._reuse_record_of(planned.trial_id)
        for record in list(self._reusable.values()):
            if self.search.considers(record.spec):
                self._reuse_record_of(record.trial_id)
        return self.reused

    def next_trial(self) -> TrialSpec | None:
        """The next trial to give out; None if there is none now (see ``finished``)."""
        # A search that knows the results of all trials but one still chooses well.
        self._settle(waits=len(self._incomplete) > 1)
        if self._is_over:
            return None
        while (spec := self.search.ask()) is not None:
            if not self._reuse_record_of(spec.trial_id):
                self._dispatched[spec.trial_id] = spec
                return spec
        return None

    def next_trials(self) -> tuple[TrialSpec, ...]:
        """The next trials for one slot: a trial, or all rounds of a tie-break. Empty if none."""
        if self._requeued and self.close_reason is None:
            return self._requeued.popleft()
        first = self._asked_ahead or self.next_trial()
        self._asked_ahead = None
        if first is None or self.close_reason is not None:
            return ()
        # The rounds of a tie-break alternate on one GPU, so one slot gets all of them.
        series = [first]
        while compared_trials(first) and (spec := self.next_trial()) is not None:
            if compared_trials(spec) != compared_trials(first):
                self._asked_ahead = spec
                break
            series.append(spec)
        return tuple(series)

    def start(self, specs: Sequence[TrialSpec]) -> tuple[TrialSpec, ...]:
        """Begin trials that were given out, because a slot is ready. Returns what to run: the
        search may choose another trial or none by now, unless the trial has lost its slot."""
        if self._started.isdisjoint(spec.trial_id for spec in specs):
            specs = self._reconsidered(specs)
        for spec in specs:
            self._dispatched[spec.trial_id] = spec
            self._started.add(spec.trial_id)
            self._allowed_seconds[spec.trial_id] = self.search.allowed_seconds(spec)
            for observer in self._observers:
                observer.started(spec)
        return tuple(specs)

    def requeue(self, specs: Sequence[TrialSpec]) -> None:
        """Take trials back that a slot cannot run; they are the next to be given out."""
        if specs:
            self._requeued.append(tuple(specs))

    def ended(self, record: TrialRecord) -> None:
        """Take the record of a trial that was started."""
        self._dispatched.pop(record.trial_id, None)
        allowed_seconds = self._allowed_seconds.pop(record.trial_id, math.inf)
        self._incomplete.append(with_limit_rule(record, allowed_seconds))
        self._settle(waits=False)

    def _settle(self, *, waits: bool) -> None:
        """Write and tell the records that are complete; with ``waits`` all."""
        incomplete, self._incomplete = self._incomplete, []
        for record in incomplete:
            for observer in self._observers:
                completed = observer.completed(record, waits)
                if completed is None:
                    self._incomplete.append(record)
                    break
                record = completed
            else:
                self._take(record)

    def _take(self, record: TrialRecord) -> None:
        try:
            record = self._folder.write(record)
        except RunFolderError as error:
            self._unwritten.append(record)
            self._fail(error)
        else:
            self._tell_ended(record, measured=True)
        self.search.tell(record)

    def write_missing_records(self) -> None:
        """Skip every planned trial without a record. Raises RunFolderError, also for earlier
        refusals."""
        self._settle(waits=True)
        while self._unwritten:
            try:
                record = self._folder.write(self._unwritten[0])
            except RunFolderError as error:
                measured = count(len(self._unwritten), "measured trial")
                lost = f"not recorded: {measured}, to be measured again by --resume"
                raise type(error)(f"{error}; {lost}") from error
            self._unwritten.pop(0)
            self._tell_ended(record, measured=True)
        for record in self.search.skipped():
            self._folder.write(record)
            self._tell_ended(record)
        reason = self.close_reason or CloseReason.ENDED
        for spec in self.pending:
            earlier = self._second_best.get(spec.trial_id)
            if earlier is None:
                earlier = self._folder.write(skipped(spec, reason.value, reason.sentence))
            self._tell_ended(earlier)
        if self._write_error is not None:
            raise self._write_error

    def close(self, reason: CloseReason) -> None:
        """Start nothing more; what is running may finish. The first reason stays."""
        self.close_reason = self.close_reason or reason

    def check_folder(self) -> None:
        """Close the session if the run folder is not ours any more: no record could be written."""
        try:
            self._folder.check_ours()
        except RunFolderLostError as error:
            self._fail(error)

    @property
    def is_futile(self) -> bool:
        """Whether to end without waiting for running trials: their records cannot be written."""
        return self.close_reason is CloseReason.FOLDER_LOST

    def interrupt(self) -> None:
        """Close the session because of Ctrl-C, SIGTERM or a closed terminal."""
        self.close(CloseReason.INTERRUPTED)
        running = len(self._started & self._dispatched.keys())
        self.message(
            f"interrupted: finishing {count(running, 'running trial')}; press again to give up"
        )

    def message(self, text: str) -> None:
        for observer in self._observers:
            observer.message(text)

    def tell_closed(self) -> None:
        for observer in self._observers:
            observer.closed()

    @property
    def dispatched(self) -> Collection[str]:
        """Ids of the trials that were given out and have no record yet."""
        return self._dispatched.keys()

    @property
    def waiting_gpu_models(self) -> set[str]:
        return {spec.gpu_model for spec in self._dispatched.values()}

    @property
    def pending(self) -> tuple[TrialSpec, ...]:
        """Planned trials without a record: given out, or not yet asked for."""
        return (*self._dispatched.values(), *self.search.pending())

    @property
    def finished(self) -> bool:
        """Whether nothing more will be given out. Some trials may still run, or be taken back."""
        if self.close_reason is None and self._incomplete and not self._dispatched:
            # Nothing runs, so there is time to wait; what is missing may bring further trials.
            self._settle(waits=True)
        return self.close_reason is not None or (self.search.exhausted and not self._dispatched)

    def seconds_left(self) -> float:
        """Seconds until the time budget ends; infinite without one."""
        return self._ends_at - self._clock()

    def seconds_for(self, specs: Sequence[TrialSpec]) -> float:
        """Seconds that trials which were started may take; infinite without any limit."""
        allowed = [self._allowed_seconds[spec.trial_id] for spec in specs]
        return min([self.seconds_left(), *allowed])

    def _fail(self, error: RunFolderError) -> None:
        """Start nothing more, and say why once. Tune would make a traceback of an error here."""
        if self.close_reason is None:
            self.message(f"{error}; nothing new is started")
        self._write_error = error
        if isinstance(error, RunFolderLostError):
            self.close(CloseReason.FOLDER_LOST)
        self.close(CloseReason.UNWRITABLE)

    @property
    def _is_over(self) -> bool:
        """Whether to start nothing more, also because the time budget has just ended."""
        if self.seconds_left() <= 0:
            self.close(CloseReason.TIME_BUDGET)
        return self.close_reason is not None

    def _reconsidered(self, specs: Sequence[TrialSpec]) -> Sequence[TrialSpec]:
        if self._is_over:
            return ()
        if len(specs) != 1:
            return specs
        self._dispatched.pop(specs[0].trial_id, None)
        chosen = self.search.reconsider(specs[0])
        # The search may choose a trial that an earlier run measured.
        while chosen is not None and self._reuse_record_of(chosen.trial_id):
            chosen = self.search.ask()
        return () if chosen is None else (chosen,)

    def _reuse_record_of(self, trial_id: str) -> bool:
        """Give a trial's earlier record to the search. Returns whether there is one."""
        record = self._reusable.pop(trial_id, None)
        if record is None:
            return False
        self.search.tell(record)
        self._tell_ended(record)
        self.reused += 1
        return True

    def _tell_ended(self, record: TrialRecord, *, measured: bool = False) -> None:
        for observer in self._observers:
            observer.ended(record, measured=measured)
