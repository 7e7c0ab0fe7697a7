"""Runs batch-size searches: one per technique set, all at once on the slots of a GPU model."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from jobs.spec import TrialSpec
from orchestrator.analysis.batch_size import BatchSizeAnswer
from orchestrator.planning.settings import SweepConfig
from orchestrator.planning.technique_sets import TechniqueSet
from orchestrator.reporting.publish import write_tables
from orchestrator.running import reports
from orchestrator.running.close_reason import CloseReason
from orchestrator.running.earlier_records import EarlierRecords, refuse_without_gpu, sort_earlier
from orchestrator.running.early_start import CheckModel
from orchestrator.running.gpu_screening import screened_cluster
from orchestrator.running.nodes import Cluster
from orchestrator.running.observers.base import Observer
from orchestrator.running.observers.loggers import logger_observers
from orchestrator.running.observers.progress import Progress
from orchestrator.running.options import RunOptions
from orchestrator.running.session import Session
from orchestrator.search.batch_size.search import BatchSizeSearch
from orchestrator.search.round_robin import RoundRobin
from orchestrator.storage.run_folder import RunFolder

VERB = "batch_size"
MAX_MICRO_BATCH = 512
MAX_MICRO_BATCH_ON_CPU = 64
"""The largest micro-batches that are tried, unless the user names another one."""
_BATCH_AXES = ("micro_batch", "accumulation")


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchSizeGoal:
    """What to find for each technique set."""

    effective_batch: int | None = None
    """Samples per optimizer step, to be reached by accumulation."""
    memory_margin: float = 0.05
    """GPU memory to keep free: a share below 1, or bytes."""
    tolerance: float = 0.02
    """Relative difference of two speeds that still counts as equal."""
    max_micro_batch: int | None = None
    """The largest micro-batch to try. None: ``MAX_MICRO_BATCH``, or less without a GPU."""
    exact: bool = False
    """Find the exact largest size. Otherwise sizes of 64 and more are found approximately."""

    def largest_size(self, *, has_gpu: bool) -> int:
        """The largest micro-batch to try."""
        if self.max_micro_batch is not None:
            return self.max_micro_batch
        if has_gpu:
            return MAX_MICRO_BATCH
        return MAX_MICRO_BATCH_ON_CPU


@dataclass(frozen=True, kw_only=True, slots=True)
class HardwareAnswers:
    """The answers for one GPU model, or for machines without a GPU."""

    hardware: str
    folder: RunFolder
    """The run folder with the records."""
    answers: tuple[BatchSizeAnswer, ...]
    """One per technique set, in their order."""
    is_interrupted: bool

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        answers = [answer.to_json() for answer in self.answers]
        return {"hardware": self.hardware, "folder": str(self.folder.path), "answers": answers}


def tune_batch_sizes(
    config: SweepConfig,
    sets: Sequence[TechniqueSet],
    goal: BatchSizeGoal,
    options: RunOptions,
    folder: RunFolder,
    *,
    check_model: CheckModel = lambda: None,
) -> list[HardwareAnswers]:
    """Tune every technique set on one GPU model after another.

    With several GPU models, each model has a folder of its own. Raises ClusterError, LoggerError or
    RunFolderError. Raises NoSuchGpuError if a GPU model is missing, or if the run has rows of GPUs
    and no GPU is found. ``check_model`` is called before the first trial, and may raise
    ConfigError.
    """
    run = reports.run_description(config, VERB)
    started_at = time.monotonic()
    tuned: list[HardwareAnswers] = []
    with screened_cluster(options.address, config.resources) as screening:
        refuse_without_gpu(folder, screening.cluster, fresh=options.fresh)
        check_model()
        folder.describe({**run, **screening.to_json()})
        parts = screening.cluster.by_hardware()
        for part in parts:
            with _folder_of_part(folder, part, is_only=len(parts) == 1) as part_folder:
                tuning = _Tuning(config, sets, goal, part, part_folder)
                # The GPU models share one time budget. Each may use what earlier models left over.
                answers = tuning.run(options, time.monotonic() - started_at)
            tuned.append(answers)
            if part_folder.records():
                write_tables(part_folder.path)
            if answers.is_interrupted:
                break
    return tuned


@contextlib.contextmanager
def _folder_of_part(folder: RunFolder, part: Cluster, *, is_only: bool) -> Iterator[RunFolder]:
    """The folder for the records of one GPU model, locked."""
    if is_only:
        yield folder
        return
    part_folder = RunFolder(folder.path / part.hardware.replace(" ", "-"))
    with part_folder.locked():
        yield part_folder


class _Tuning:
    """A config's technique sets on the slots of one GPU model."""

    def __init__(
        self,
        config: SweepConfig,
        sets: Sequence[TechniqueSet],
        goal: BatchSizeGoal,
        cluster: Cluster,
        folder: RunFolder,
    ) -> None:
        self._config = config
        self._sets = sets
        self._goal = goal
        self._cluster = cluster
        self._folder = folder
        self._has_gpu = cluster.gpus > 0
        self._searches = [self._search(technique_set) for technique_set in sets]

    def run(self, options: RunOptions, spent_seconds: float) -> HardwareAnswers:
        """Tune. ``spent_seconds`` of the time budget are already used."""
        earlier = self._earlier_records(options)
        # The part of the time budget that earlier GPU models have not used.
        budget = reports.time_budget_seconds(self._config, options, self._cluster)
        if budget is not None:
            budget = max(0.0, budget - spent_seconds)
        session = self._session(options, budget)
        for sentence in earlier.sentences(self._cluster.environments):
            session.message(sentence)
        session.reuse(earlier.wanted, self._cluster.environments, resume=options.resume)
        self._measure(session, earlier)
        return HardwareAnswers(
            hardware=self._cluster.hardware,
            folder=self._folder,
            answers=tuple(search.answer for search in self._searches),
            is_interrupted=session.close_reason is CloseReason.INTERRUPTED,
        )

    def _earlier_records(self, options: RunOptions) -> EarlierRecords:
        """Earlier records of the searches' trials."""
        hardware = {}
        if self._has_gpu:
            hardware[""] = self._cluster.hardware
        return sort_earlier(self._folder, self._is_known, fresh=options.fresh, hardware=hardware)

    def _measure(self, session: Session, earlier: EarlierRecords) -> None:
        """Run the session's trials.

        All trials of a set need the same operators and reservation, so the smallest one names them.
        """
        smallest = self._smallest_trials()
        needs = None
        if smallest:
            needs = smallest[0].needs
        reports.measure(
            session,
            self._cluster,
            self._folder,
            to_build_for=smallest,
            needs=needs,
            run={
                **reports.run_description(self._config, VERB),
                "notes": list(earlier.sentences()),
            },
        )

    def _session(self, options: RunOptions, budget: float | None) -> Session:
        """Print the opening lines and make the session. Raises LoggerError."""
        # Loggers start first. If one refuses to start, the verb ends before anything is printed.
        axes = self._labelled_axes()
        config = self._config
        folder = self._folder
        loggers = logger_observers(
            config.loggers, folder.path, config.name, axes, may_write=folder.is_ours
        )
        progress = Progress(None, axes, stream=reports.progress_stream(options))
        progress.print(f"now on {reports.slots_in_words(self._cluster)}")
        for line in reports.opening_lines(self._cluster, self._folder, budget):
            progress.print(line)
        search = RoundRobin(self._searches)
        observers: list[Observer] = [progress, *loggers]
        return Session(search, self._folder, observers, time_budget_seconds=budget)

    def _search(self, technique_set: TechniqueSet) -> BatchSizeSearch:
        make_trial = partial(
            technique_set.trial,
            self._config,
            has_gpu=self._has_gpu,
            relative_error=self._goal.tolerance,
        )
        return BatchSizeSearch(
            make_trial,
            techniques=technique_set.label,
            limited=self._has_gpu,
            effective_batch=self._goal.effective_batch,
            margin=self._goal.memory_margin,
            tolerance=self._goal.tolerance,
            max_micro_batch=self._goal.largest_size(has_gpu=self._has_gpu),
            exact=self._goal.exact,
        )

    def _is_known(self, spec: TrialSpec) -> bool:
        return any(search.knows(spec) for search in self._searches)

    def _smallest_trials(self) -> list[TrialSpec]:
        """Each set's trial of one sample. A set that is ruled out has none."""
        trials = []
        for technique_set in self._sets:
            trial = technique_set.trial(self._config, 1, 1, has_gpu=self._has_gpu)
            if isinstance(trial, TrialSpec):
                trials.append(trial)
        return trials

    def _labelled_axes(self) -> tuple[str, ...]:
        """The axes of the batch, and the axes on which the technique sets differ."""
        varying = []
        for axis in self._sets[0].choices:
            values = {str(technique_set.choices[axis]) for technique_set in self._sets}
            if len(values) > 1:
                varying.append(axis)
        return (*_BATCH_AXES, *varying)
