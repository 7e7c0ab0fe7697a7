"""Runs batch-size searches: one per technique set, all at once on the slots of a GPU model."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from jobs.spec import TrialSpec
from orchestrator.analysis.batch_size import BatchSizeResult
from orchestrator.planning.settings import SweepConfig
from orchestrator.planning.technique_sets import TechniqueSet
from orchestrator.reporting.publish import write_tables
from orchestrator.running import reports
from orchestrator.running.close_reason import CloseReason
from orchestrator.running.earlier_records import refuse_without_gpu, sort_earlier
from orchestrator.running.early_start import CheckModel
from orchestrator.running.gpu_screening import screened_cluster
from orchestrator.running.nodes import Cluster
from orchestrator.running.observers.loggers import logger_observers
from orchestrator.running.observers.observer import Observer
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
    answers: tuple[BatchSizeResult, ...]
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
            part_folder = folder
            lock: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
            if len(parts) > 1:
                part_folder = RunFolder(folder.path / part.hardware.replace(" ", "-"))
                lock = part_folder.locked()
            with lock:
                tuning = _Tuning(config, sets, goal, part, part_folder)
                # The GPU models share one time budget. Each may use what earlier models left over.
                answers = tuning.run(options, time.monotonic() - started_at)
            tuned.append(answers)
            if part_folder.records():
                write_tables(part_folder.path)
            if answers.is_interrupted:
                break
    return tuned


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
        """Tune. ``spent_seconds`` of the time budget are already used. Raises LoggerError."""
        hardware = {"": self._cluster.hardware} if self._has_gpu else {}
        earlier = sort_earlier(
            self._folder,
            lambda spec: any(search.knows(spec) for search in self._searches),
            fresh=options.fresh,
            hardware=hardware,
        )
        # The part of the time budget that earlier GPU models have not used.
        budget = reports.time_budget_seconds(self._config, options, self._cluster)
        if budget is not None:
            budget = max(0.0, budget - spent_seconds)
        session = Session(
            RoundRobin(self._searches),
            self._folder,
            self._observers(options, budget),
            time_budget_seconds=budget,
        )
        for sentence in earlier.sentences(self._cluster.environments):
            session.message(sentence)
        session.reuse(earlier.wanted, self._cluster.environments, resume=options.resume)
        # All trials of a set need the same operators and reservation: the smallest one names them.
        smallest = self._smallest_trials()
        run = reports.run_description(self._config, VERB)
        reports.measure(
            session,
            self._cluster,
            self._folder,
            to_build_for=smallest,
            needs=smallest[0].needs if smallest else None,
            run={**run, "notes": list(earlier.sentences())},
        )
        return HardwareAnswers(
            hardware=self._cluster.hardware,
            folder=self._folder,
            answers=tuple(search.answer for search in self._searches),
            is_interrupted=session.close_reason is CloseReason.INTERRUPTED,
        )

    def _observers(self, options: RunOptions, budget: float | None) -> list[Observer]:
        """The session's observers. Prints the opening lines."""
        # The axes of the batch, and the axes on which the technique sets differ.
        axes = list(_BATCH_AXES)
        for axis in self._sets[0].choices:
            if len({str(technique_set.choices[axis]) for technique_set in self._sets}) > 1:
                axes.append(axis)
        # Loggers start first. If one refuses to start, the verb ends before anything is printed.
        config = self._config
        folder = self._folder
        loggers = logger_observers(
            config.loggers, folder.path, config.name, axes, may_write=folder.is_ours
        )
        progress = Progress(None, axes, stream=reports.progress_stream(options))
        progress.print(f"now on {reports.slots_in_words(self._cluster)}")
        for line in reports.opening_lines(self._cluster, folder, budget):
            progress.print(line)
        return [progress, *loggers]

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

    def _smallest_trials(self) -> list[TrialSpec]:
        """Each set's trial of one sample. A set that is ruled out has none."""
        trials = []
        for technique_set in self._sets:
            trial = technique_set.trial(self._config, 1, 1, has_gpu=self._has_gpu)
            if isinstance(trial, TrialSpec):
                trials.append(trial)
        return trials
