"""A whole sweep: from its configuration to a record for every planned trial."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

from jobs.node import nvml
from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec
from orchestrator.planning.plan import Plan, order_by_size, plan
from orchestrator.planning.settings import SweepConfig
from orchestrator.running import lifecycle
from orchestrator.running.background_prediction import BackgroundPredictor
from orchestrator.running.close_reason import CloseReason
from orchestrator.running.earlier_records import EarlierRecords, refuse_without_gpu, sort_earlier
from orchestrator.running.event_log import EventLog
from orchestrator.running.gpu_screening import Screening, screened_cluster
from orchestrator.running.loggers import logger_observers
from orchestrator.running.nodes import Cluster
from orchestrator.running.observers import Observer
from orchestrator.running.options import RunOptions
from orchestrator.running.progress import Progress
from orchestrator.running.prometheus import Metrics
from orchestrator.running.session import Session
from orchestrator.search.per_gpu_model import for_gpu_model, per_gpu_model
from orchestrator.search.registry import SEARCHES, SearchFactory
from orchestrator.storage.run_folder import RunFolder
from orchestrator.units import count


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepEnd:
    """How a sweep ended."""

    is_interrupted: bool
    failure: str
    """Why no trial ended ok, in a sentence; empty if one did."""


MakePlan = Callable[[SweepConfig, bool], tuple[SweepConfig, Plan]]
"""Takes a configuration, and whether there is a GPU. Returns what is run, and its plan."""


def planned_as_written(config: SweepConfig, has_gpu: bool) -> tuple[SweepConfig, Plan]:
    """The configuration as it is, and the plan of its axes."""
    return config, plan(config, has_gpu=has_gpu)


def run_sweep(
    config: SweepConfig,
    options: RunOptions,
    folder: RunFolder,
    *,
    make_plan: MakePlan = planned_as_written,
    verb: str = "sweep",
) -> SweepEnd:
    """Measure the plan on every GPU model that the cluster has.

    ``make_plan`` is asked while Ray starts, and again if the cluster has a GPU and this machine has
    none, or the other way round. Raises ClusterError, NoSuchGpuError, LoggerError or
    RunFolderError.
    """
    with ThreadPoolExecutor(max_workers=1) as pool, ExitStack() as stack:
        # A large plan takes seconds, so it is made while Ray starts, for what this machine has.
        expects_gpu = bool(nvml.visible_uuids())
        early = pool.submit(_with_ids, make_plan, config, expects_gpu)
        screening = stack.enter_context(screened_cluster(options.address, config.resources))
        has_gpu = screening.cluster.gpus > 0
        if has_gpu == expects_gpu:
            planned_config, planned = early.result()
        else:
            planned_config, planned = make_plan(config, has_gpu)
        with _search_factory(planned_config, screening.cluster) as factory:
            sweep = _Sweep(planned_config, planned, options, folder, screening, verb)
            session = sweep.run(factory)
    return SweepEnd(
        is_interrupted=session.close_reason is CloseReason.INTERRUPTED,
        failure=why_none_ok(folder.records().values()),
    )


def _with_ids(make_plan: MakePlan, config: SweepConfig, has_gpu: bool) -> tuple[SweepConfig, Plan]:
    """A plan whose trials have computed their ids, which each of them keeps."""
    planned_config, planned = make_plan(config, has_gpu)
    for trial in planned.trials:
        _ = trial.trial_id
    return planned_config, planned


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


@contextlib.contextmanager
def _search_factory(config: SweepConfig, cluster: Cluster) -> Iterator[SearchFactory]:
    """Builds the sweep's searches, and predicts memory in the background during the context."""
    has_gpu = cluster.gpus > 0
    if not has_gpu or not SEARCHES[config.search.kind].uses_predicted_memory:
        yield SearchFactory(config=config, with_follow_ups=has_gpu)
        return
    with BackgroundPredictor() as predictor:
        yield SearchFactory(config=config, predictor=predictor, with_follow_ups=True)


class _Sweep:
    """The plan of a sweep on one cluster, and its session."""

    def __init__(
        self,
        config: SweepConfig,
        planned: Plan,
        options: RunOptions,
        folder: RunFolder,
        screening: Screening,
        verb: str,
    ) -> None:
        self._config = config
        self._verb = verb
        self._options = options
        self._folder = folder
        self._screening = screening
        self._cluster = screening.cluster
        self._plan = planned
        self._parts = self._cluster.by_gpu_model()
        self._slots = self._cluster.slots_by_model()
        """GPU model -> its slots now. The search reads this mapping, and the cluster updates it."""
        self._trials = {model: self._trials_for(model) for model in self._parts}
        """GPU model -> its trials of the plan."""
        self._planned_ids: set[str] = set()
        for trials in self._trials.values():
            self._planned_ids.update(spec.trial_id for spec in trials)

    def run(self, factory: SearchFactory) -> Session:
        """Measure; returns the session once it has ended."""
        # Earlier records and observers come first.
        earlier = self._earlier_records()
        progress = self._progress()
        session = self._session(factory, [progress, *self._other_observers()])
        for line in (*self._opening_lines(), *self._lines_about(earlier)):
            progress.print(line)
        session.reuse(earlier.wanted, self._cluster.environments, resume=self._options.resume)
        lifecycle.print_kept_count(session)
        # The records of combinations that cannot run are written before the first trial.
        if not self._config.search.is_space:
            for record in self._plan.ruled_out:
                self._folder.write(record)
        lifecycle.measure(
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

    def _trials_for(self, model: str) -> tuple[TrialSpec, ...]:
        """The plan on one GPU model.

        Without a GPU the time budget may not suffice, so the smallest trials come first.
        """
        trials = self._plan.trials
        if not self._cluster.gpus:
            trials = order_by_size(trials)
        return for_gpu_model(trials, model)

    def _session(self, factory: SearchFactory, observers: Sequence[Observer]) -> Session:
        # Each GPU model is searched on its own: a frontier belongs to one model.
        searches = {}
        for model, trials in self._trials.items():
            searches[model] = factory.build(trials, self._parts[model].hardware)
        return Session(
            per_gpu_model(searches, self._slots),
            self._folder,
            observers,
            time_budget_seconds=self._time_budget_seconds,
        )

    def _progress(self) -> Progress:
        stream = lifecycle.progress_stream(self._options)
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
        return [log, Metrics(config.name, len(self._planned_ids)), *loggers]

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
        for line in lifecycle.environment_lines(earlier, self._cluster.environments):
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
        where = lifecycle.slots_in_words(self._cluster)
        planned = len(self._plan.trials)
        if self._config.search.is_space:
            considered = f"{count(planned, 'configuration')} considered{on_models}"
        else:
            ruled_out = len(self._plan.ruled_out)
            considered = f"{count(planned, 'trial')}{on_models}, {ruled_out} ruled out"
        yield f"{self._config.name}: {considered}, on {where}"
        yield from self._screening.notes
        yield from lifecycle.opening_lines(self._cluster, self._folder, self._time_budget_seconds)
        if not self._cluster.gpus and self._config.search.kind == "grid":
            yield "   the smallest trials run first"

    def _description(self, earlier: EarlierRecords) -> dict[str, object]:
        """The content of ``run.json`` before anything is measured."""
        description = lifecycle.run_description(self._config, self._verb)
        planned = {}
        if self._planned_count is not None:
            planned["planned"] = self._planned_count
        notes = [*self._screening.notes, *earlier.sentences()]
        return {**description, **self._screening.to_json(), **planned, "notes": notes}

    @property
    def _time_budget_seconds(self) -> float | None:
        return lifecycle.time_budget_seconds(self._config, self._options, self._cluster)
