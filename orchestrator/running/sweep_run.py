"""A whole sweep: from its configuration to a record for every planned trial."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec
from orchestrator.planning.plan import order_by_size, plan
from orchestrator.planning.settings import SweepConfig
from orchestrator.running import lifecycle
from orchestrator.running.background_prediction import BackgroundPredictor
from orchestrator.running.event_log import EventLog
from orchestrator.running.gpu_screening import Screening, screened_cluster
from orchestrator.running.loggers import logger_observers
from orchestrator.running.nodes import Cluster
from orchestrator.running.observers import Observer
from orchestrator.running.options import RunOptions
from orchestrator.running.progress import Progress
from orchestrator.running.prometheus import Metrics
from orchestrator.running.session import CloseReason, Session
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


def run_sweep(config: SweepConfig, options: RunOptions, folder: RunFolder) -> SweepEnd:
    """Measure the plan on every GPU model that the cluster has.

    Raises ClusterError, NoSuchGpuError, LoggerError or RunFolderError.
    """
    with (
        screened_cluster(options.address, config.resources) as screening,
        _search_factory(config, screening.cluster) as factory,
    ):
        session = _Sweep(config, options, folder, screening).run(factory)
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
    telling = _most_telling(listed)
    outcome, amount = Counter(record.outcome for record in telling).most_common(1)[0]
    reasons = Counter(record.reason for record in telling if record.outcome is outcome)
    reason, _ = reasons.most_common(1)[0]
    trials = f"{amount} of {count(len(listed), 'trial')}"
    return f"no trial ended ok: {trials} ended with {outcome.value}, most often: {reason}"


def _most_telling(records: Sequence[TrialRecord]) -> Sequence[TrialRecord]:
    """The trials that were started. If there is none, those not skipped, and then all."""
    started = [record for record in records if record.started_at]
    not_skipped = [record for record in records if record.outcome is not Outcome.SKIPPED]
    return started or not_skipped or records


@contextlib.contextmanager
def _search_factory(config: SweepConfig, cluster: Cluster) -> Iterator[SearchFactory]:
    """Builds the sweep's searches. Memory is predicted beside them while the context lasts."""
    has_gpu = cluster.gpus > 0
    if not has_gpu or not SEARCHES[config.search.kind].uses_predicted_memory:
        yield SearchFactory(config=config, with_follow_ups=has_gpu)
        return
    with BackgroundPredictor() as predictor:
        yield SearchFactory(config=config, predictor=predictor, with_follow_ups=True)


class _Sweep:
    """The plan of a sweep on one cluster, and its session."""

    def __init__(
        self, config: SweepConfig, options: RunOptions, folder: RunFolder, screening: Screening
    ) -> None:
        self._config = config
        self._options = options
        self._folder = folder
        self._screening = screening
        self._cluster = screening.cluster
        self._plan = plan(config, has_gpu=self._cluster.gpus > 0)
        self._parts = self._cluster.by_gpu_model()
        self._slots = self._cluster.slots_by_model()
        """GPU model -> its slots by now; the search reads it."""
        self._trials = {model: self._trials_for(model) for model in self._parts}
        """GPU model -> its trials of the plan."""
        trials = [spec for specs in self._trials.values() for spec in specs]
        self._planned_ids = {spec.trial_id for spec in trials}

    def run(self, factory: SearchFactory) -> Session:
        """Measure; returns the session once it has ended."""
        earlier = self._earlier_records()
        progress = self._progress()
        session = self._session(factory, [progress, *self._other_observers()])
        for line in self._opening_lines():
            progress.print(line)
        environments = [node.environment for node in self._cluster.nodes]
        session.reuse(earlier, environments, resume=self._options.resume)
        lifecycle.say_what_is_kept(session)
        for record in self._plan.ruled_out:
            self._folder.write(record)
        lifecycle.measure(
            session,
            self._cluster,
            self._folder,
            to_build_for=session.pending,
            needs=next((spec.needs for spec in self._plan.trials), None),
            run=self._description(),
            on_slots=self._slots.update,
        )
        return session

    def _trials_for(self, model: str) -> tuple[TrialSpec, ...]:
        """The plan on one GPU model. Without a GPU the smallest come first: time runs out."""
        trials = self._plan.trials
        if not self._cluster.gpus:
            trials = order_by_size(trials)
        return for_gpu_model(trials, model)

    def _session(self, factory: SearchFactory, observers: Sequence[Observer]) -> Session:
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
        stream = sys.stderr if self._options.as_json else sys.stdout
        return Progress(len(self._planned_ids), self._config.axes_in_play, stream=stream)

    def _other_observers(self) -> Sequence[Observer]:
        """What else watches the sweep. Raises LoggerError."""
        config, path = self._config, self._folder.path
        loggers = logger_observers(config.loggers, path, config.name, config.axes_in_play)
        return [EventLog(path), Metrics(config.name, len(self._planned_ids)), *loggers]

    def _earlier_records(self) -> dict[str, TrialRecord]:
        """Earlier records of planned trials, and of follow-ups to them."""
        hardware = {model: part.hardware for model, part in self._parts.items()}
        return lifecycle.wanted_records(
            self._folder, self._is_wanted, fresh=self._options.fresh, hardware=hardware
        )

    def _is_wanted(self, spec: TrialSpec) -> bool:
        followed = spec.follow_up.follows_trial if spec.follow_up else spec.trial_id
        return followed in self._planned_ids

    def _opening_lines(self) -> Iterator[str]:
        """What is printed before measuring."""
        trials = count(len(self._plan.trials), "trial")
        each = f" on each of {len(self._parts)} GPU models" if len(self._parts) > 1 else ""
        ruled_out = len(self._plan.ruled_out)
        where = lifecycle.slots_in_words(self._cluster)
        yield f"{self._config.name}: {trials}{each}, {ruled_out} ruled out, on {where}"
        yield from self._screening.notes
        yield from lifecycle.opening_lines(self._cluster, self._folder, self._time_budget_seconds)

    def _description(self) -> dict[str, object]:
        """What ``run.json`` says before anything is measured."""
        description = lifecycle.run_description(self._config, "sweep")
        planned = {"planned": len(self._planned_ids)}
        return {**description, **self._screening.to_json(), **planned}

    @property
    def _time_budget_seconds(self) -> float | None:
        return lifecycle.time_budget_seconds(self._config, self._options, self._cluster)
