"""A whole sweep: from its configuration to a record for every planned trial."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec
from orchestrator.planning.settings import SweepConfig
from orchestrator.running import reports
from orchestrator.running.close_reason import CloseReason
from orchestrator.running.earlier_records import EarlierRecords, refuse_without_gpu, sort_earlier
from orchestrator.running.early_start import CheckModel
from orchestrator.running.gpu_screening import Screening, screened_cluster
from orchestrator.running.observers.base import Observer
from orchestrator.running.observers.event_log import EventLog
from orchestrator.running.observers.loggers import logger_observers
from orchestrator.running.observers.progress import Progress
from orchestrator.running.observers.prometheus import Metrics
from orchestrator.running.options import RunOptions
from orchestrator.running.planned_sweep import (
    Machines,
    MakePlan,
    PlannedSweep,
    planned_as_written,
    planned_sweep,
)
from orchestrator.running.session import Session
from orchestrator.search.per_gpu_model import per_gpu_model
from orchestrator.storage.run_folder import RunFolder
from orchestrator.units import count


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepEnd:
    """How a sweep ended."""

    is_interrupted: bool
    failure: str
    """Why no trial ended ok, in a sentence; empty if one did."""


def run_sweep(
    config: SweepConfig,
    options: RunOptions,
    folder: RunFolder,
    *,
    make_plan: MakePlan = planned_as_written,
    verb: str = "sweep",
    check_model: CheckModel = lambda: None,
) -> SweepEnd:
    """Measure the plan on every GPU model that the cluster has.

    The plan and its searches are made while Ray starts, for this machine. They are made again for
    a cluster that is unlike it. ``check_model`` is called before the first trial. Raises
    ClusterError, NoSuchGpuError, LoggerError, RunFolderError, and what ``check_model`` raises.
    """
    with ThreadPoolExecutor(max_workers=1) as pool, ExitStack() as stack:
        here = Machines.here()
        early = pool.submit(planned_sweep, config, make_plan, here)
        screening = stack.enter_context(screened_cluster(options.address, config.resources))
        machines = Machines.of(screening.cluster)
        if machines != here:
            early = pool.submit(planned_sweep, config, make_plan, machines)
        planned = early.result()
        check_model()
        if planned.predictor is not None:
            stack.enter_context(planned.predictor)
        session = _Sweep(planned, options, folder, screening, verb).run()
    return SweepEnd(
        is_interrupted=session.close_reason is CloseReason.INTERRUPTED,
        failure=why_none_ok(folder.records().values()),
    )


def why_none_ok(records: Iterable[TrialRecord]) -> str:
    """A sentence with the commonest reason why no trial ended ok; empty if one did."""
    listed = list(records)
    if any(record.outcome is Outcome.OK for record in listed):
        return ""
    if not listed:
        return "no trial ended ok: nothing is planned"
    outcome, reason, amount = _commonest_end(_most_informative(listed))
    trials = f"{amount} of {count(len(listed), 'trial')}"
    return f"no trial ended ok: {trials} ended with {outcome.value}, most often: {reason}"


def _commonest_end(records: Iterable[TrialRecord]) -> tuple[Outcome, str, int]:
    """The commonest outcome, the commonest of its reasons, and how many records it has."""
    outcomes = Counter[Outcome]()
    reasons = Counter[tuple[Outcome, str]]()
    for record in records:
        outcomes[record.outcome] += 1
        reasons[record.outcome, record.reason] += 1
    outcome, amount = outcomes.most_common(1)[0]
    reason = next(reason for (of, reason), _ in reasons.most_common() if of is outcome)
    return outcome, reason, amount


def _most_informative(records: Sequence[TrialRecord]) -> Sequence[TrialRecord]:
    """The trials that were started. If there is none, those not skipped, and then all."""
    started = [record for record in records if record.started_at]
    not_skipped = [record for record in records if record.outcome is not Outcome.SKIPPED]
    return started or not_skipped or records


class _Sweep:
    """The plan of a sweep on one cluster, and its session."""

    def __init__(
        self,
        planned: PlannedSweep,
        options: RunOptions,
        folder: RunFolder,
        screening: Screening,
        verb: str,
    ) -> None:
        self._planned = planned
        self._config = planned.config
        self._plan = planned.plan
        self._verb = verb
        self._options = options
        self._folder = folder
        self._screening = screening
        self._cluster = screening.cluster
        self._parts = self._cluster.by_gpu_model()
        self._slots = self._cluster.slots_by_model()
        """GPU model -> its slots now. The search reads this mapping, and the cluster updates it."""
        self._planned_ids: set[str] = set()
        for trials in planned.trials.values():
            self._planned_ids.update(spec.trial_id for spec in trials)

    def run(self) -> Session:
        """Measure; returns the session once it has ended."""
        # Earlier records and observers come first.
        earlier = self._earlier_records()
        progress = self._progress()
        session = self._session([progress, *self._other_observers()])
        for line in (*self._opening_lines(), *self._lines_about(earlier)):
            progress.print(line)
        session.reuse(earlier.wanted, self._cluster.environments, resume=self._options.resume)
        reports.print_kept_count(session)
        # The records of combinations that cannot run are written before the first trial.
        if not self._config.search.is_space:
            for record in self._plan.ruled_out:
                self._folder.write(record)
        reports.measure(
            session,
            self._cluster,
            self._folder,
            to_build_for=self._to_build_for(session),
            needs=next((spec.needs for spec in self._plan.trials), None),
            run=self._description(earlier),
            on_slots=self._slots.update,
        )
        return session

    def _to_build_for(self, session: Session) -> Iterable[TrialSpec]:
        """The trials whose operators are built beforehand.

        Only a few configurations of a space are measured, so its operators are built when needed.
        """
        if self._config.search.is_space:
            return ()
        return session.pending

    def _session(self, observers: Sequence[Observer]) -> Session:
        return Session(
            per_gpu_model(self._planned.searches, self._slots),
            self._folder,
            observers,
            time_budget_seconds=self._time_budget_seconds,
        )

    def _progress(self) -> Progress:
        stream = reports.progress_stream(self._options)
        return Progress(self._planned_count, self._config.axes_in_play, stream=stream)

    @property
    def _planned_count(self) -> int | None:
        """Number of trials that will have a record; None if the plan is a space to choose from."""
        if self._config.search.is_space:
            return None
        return len(self._planned_ids)

    def _other_observers(self) -> Sequence[Observer]:
        """All observers except progress. Raises LoggerError if a logger cannot start."""
        config = self._config
        path = self._folder.path
        is_ours = self._folder.is_ours
        loggers = logger_observers(
            config.loggers, path, config.name, config.axes_in_play, may_write=is_ours
        )
        log = EventLog(path, may_write=is_ours)
        observers: list[Observer] = [log, Metrics(config.name, len(self._planned_ids)), *loggers]
        if self._planned.predictor is not None:
            observers.append(self._planned.predictor)
        return observers

    def _earlier_records(self) -> EarlierRecords:
        """Earlier records of planned trials, and of follow-ups to them.

        Raises NoSuchGpuError if the run has rows of GPUs and no GPU is found.
        """
        fresh = self._options.fresh
        refuse_without_gpu(self._folder, self._cluster, fresh=fresh)
        hardware = {model: part.hardware for model, part in self._parts.items()}
        return sort_earlier(self._folder, self._is_wanted, fresh=fresh, hardware=hardware)

    def _lines_about(self, earlier: EarlierRecords) -> Iterator[str]:
        """The lines about earlier records that are moved, left alone or measured again."""
        for sentence in earlier.sentences():
            yield f"-- {sentence}"
        for line in reports.environment_lines(earlier, self._cluster.environments):
            yield f"-- {line}"

    def _is_wanted(self, spec: TrialSpec) -> bool:
        if spec.follow_up is not None:
            return spec.follow_up.follows_trial in self._planned_ids
        return spec.trial_id in self._planned_ids

    def _opening_lines(self) -> Iterator[str]:
        """What is printed before measuring."""
        on_models = ""
        if len(self._parts) > 1:
            on_models = f" on each of {len(self._parts)} GPU models"
        where = reports.slots_in_words(self._cluster)
        planned = len(self._plan.trials)
        if self._config.search.is_space:
            considered = f"{count(planned, 'configuration')} considered{on_models}"
        else:
            ruled_out = len(self._plan.ruled_out)
            considered = f"{count(planned, 'trial')}{on_models}, {ruled_out} ruled out"
        yield f"{self._config.name}: {considered}, on {where}"
        yield from self._screening.notes
        yield from reports.opening_lines(self._cluster, self._folder, self._time_budget_seconds)
        if not self._cluster.gpus and self._config.search.kind == "grid":
            yield "   the smallest trials run first"

    def _description(self, earlier: EarlierRecords) -> dict[str, object]:
        """The content of ``run.json`` before anything is measured."""
        description = reports.run_description(self._config, self._verb)
        planned = {}
        if self._planned_count is not None:
            planned["planned"] = self._planned_count
        notes = [*self._screening.notes, *earlier.sentences()]
        return {**description, **self._screening.to_json(), **planned, "notes": notes}

    @property
    def _time_budget_seconds(self) -> float | None:
        return reports.time_budget_seconds(self._config, self._options, self._cluster)
