"""A whole sweep: from its configuration to a record for every planned trial."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
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
from orchestrator.running.observers.event_log import EventLog
from orchestrator.running.observers.loggers import logger_observers
from orchestrator.running.observers.observer import Observer
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
    # The trials that were started say most. If there is none, those not skipped do, and then all.
    started = [record for record in listed if record.started_at]
    not_skipped = [record for record in listed if record.outcome is not Outcome.SKIPPED]
    telling = started or not_skipped or listed
    ((outcome, amount),) = Counter(record.outcome for record in telling).most_common(1)
    reasons = Counter(record.reason for record in telling if record.outcome is outcome)
    ((reason, _),) = reasons.most_common(1)
    trials = f"{amount} of {count(len(listed), 'trial')}"
    return f"no trial ended ok: {trials} ended with {outcome.value}, most often: {reason}"


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
        self._verb = verb
        self._options = options
        self._folder = folder
        self._screening = screening
        self._cluster = screening.cluster
        self._time_budget = reports.time_budget_seconds(self._config, options, self._cluster)
        self._slots = self._cluster.slots_by_model()
        """GPU model -> its slots now. The search reads this mapping, and the cluster updates it."""
        trials = itertools.chain.from_iterable(planned.trials.values())
        self._planned_ids = {spec.trial_id for spec in trials}

    def run(self) -> Session:
        """Measure; returns the session once it has ended.

        Raises NoSuchGpuError if the run has rows of GPUs and no GPU is found, and LoggerError if a
        logger cannot start.
        """
        # Only a few configurations of a space are measured, so it has no number of planned trials,
        # and its operators are built when they are needed.
        is_space = self._config.search.is_space
        planned = None if is_space else len(self._planned_ids)
        earlier = self._earlier_records()
        progress = Progress(
            planned, self._config.axes_in_play, stream=reports.progress_stream(self._options)
        )
        session = Session(
            per_gpu_model(self._planned.searches, self._slots),
            self._folder,
            [progress, *self._other_observers()],
            time_budget_seconds=self._time_budget,
        )
        for line in self._opening_lines():
            progress.print(line)
        for sentence in earlier.sentences(self._cluster.environments):
            progress.message(sentence)
        session.reuse(earlier.wanted, self._cluster.environments, resume=self._options.resume)
        reports.print_kept_count(session)
        # The records of combinations that cannot run are written before the first trial.
        if not is_space:
            for record in self._planned.plan.ruled_out:
                self._folder.write(record)
        run = reports.run_description(self._config, self._verb) | self._screening.to_json()
        if planned is not None:
            run["planned"] = planned
        reports.measure(
            session,
            self._cluster,
            self._folder,
            to_build_for=() if is_space else session.pending,
            needs=next((spec.needs for spec in self._planned.plan.trials), None),
            run={**run, "notes": [*self._screening.notes, *earlier.sentences()]},
            on_slots=self._slots.update,
        )
        return session

    def _other_observers(self) -> list[Observer]:
        """All observers except progress."""
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
        """Earlier records of planned trials, and of follow-ups to them."""
        fresh = self._options.fresh
        refuse_without_gpu(self._folder, self._cluster, fresh=fresh)
        hardware = Machines.of(self._cluster).hardware
        return sort_earlier(self._folder, self._is_wanted, fresh=fresh, hardware=hardware)

    def _is_wanted(self, spec: TrialSpec) -> bool:
        if spec.follow_up is not None:
            return spec.follow_up.follows_trial in self._planned_ids
        return spec.trial_id in self._planned_ids

    def _opening_lines(self) -> Iterator[str]:
        """What is printed before measuring."""
        on_models = ""
        if len(self._planned.trials) > 1:
            on_models = f" on each of {len(self._planned.trials)} GPU models"
        trials = len(self._planned.plan.trials)
        considered = f"{count(trials, 'configuration')} considered{on_models}"
        if not self._config.search.is_space:
            ruled_out = len(self._planned.plan.ruled_out)
            considered = f"{count(trials, 'trial')}{on_models}, {ruled_out} ruled out"
        yield f"{self._config.name}: {considered}, on {reports.slots_in_words(self._cluster)}"
        yield from self._screening.notes
        yield from reports.opening_lines(self._cluster, self._folder, self._time_budget)
        if not self._cluster.gpus and self._config.search.kind == "grid":
            yield "   the smallest trials run first"
