"""Runs batch-size searches: one per technique set, all at once on the slots of a GPU model."""

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from jobs.spec import TrialSpec
from jobs.techniques import BATCH_AXES
from orchestrator.analysis.batch_size_answer import BatchSizeResult
from orchestrator.planning.settings import SweepConfig
from orchestrator.planning.technique_sets import TechniqueSet
from orchestrator.reporting.publish import write_tables
from orchestrator.running.close_reason import CloseReason
from orchestrator.running.early_start import Start
from orchestrator.running.gpu_screening import screened_cluster
from orchestrator.running.measurement import RunRequest, measure, run_description, slots_in_words
from orchestrator.running.nodes import Cluster
from orchestrator.search.batch_size.batch_size_search import BatchSizeGoal, BatchSizeSearch
from orchestrator.search.several import RoundRobin
from orchestrator.storage.run_folder import RunFolder

VERB = "batch_size"


@dataclass(frozen=True, kw_only=True, slots=True)
class HardwareAnswers:
    """The answers for one GPU model, or for machines without a GPU."""

    hardware: str
    folder: RunFolder
    answers: tuple[BatchSizeResult, ...]
    """One per technique set, in their order."""
    is_interrupted: bool

    def to_json(self) -> dict[str, Any]:
        answers = [answer.to_json() for answer in self.answers]
        return {"hardware": self.hardware, "folder": str(self.folder.path), "answers": answers}


def tune_batch_sizes(
    start: Start, sets: Sequence[TechniqueSet], goal: BatchSizeGoal
) -> list[HardwareAnswers]:
    """Tune every technique set on one GPU model after another, with a folder for each of several.
    Raises what ``measure``, ``screened_cluster`` and ``start.check_model`` raise."""
    config = start.config
    started_at = time.monotonic()
    tuned: list[HardwareAnswers] = []
    with screened_cluster(start.options.address, config.resources) as screening:
        start.check_model()
        parts = screening.cluster.by_hardware()
        if len(parts) > 1:
            start.folder.describe(run_description(config, VERB) | screening.to_json())
        for part in parts:
            with _folder_of(part, start.folder, is_only=len(parts) == 1) as folder:
                searches = [_search(one, config, goal, part) for one in sets]
                # The GPU models share one time budget. Each may use what earlier models left over.
                spent_seconds = time.monotonic() - started_at
                work = _measurement(config, sets, searches, part, spent_seconds)
                session = measure(work, replace(screening, cluster=part), start, folder)
            answers = HardwareAnswers(
                hardware=part.hardware,
                folder=folder,
                answers=tuple(search.answer for search in searches),
                is_interrupted=session.close_reason is CloseReason.INTERRUPTED,
            )
            tuned.append(answers)
            if folder.records():
                write_tables(folder.path)
            if answers.is_interrupted:
                break
    return tuned


def _folder_of(
    part: Cluster, folder: RunFolder, *, is_only: bool
) -> AbstractContextManager[RunFolder]:
    """The locked folder of a GPU model: the run's own folder, which is locked, for the only one."""
    if is_only:
        return nullcontext(folder)
    return RunFolder(folder.path / part.hardware.replace(" ", "-")).locked()


def _measurement(
    config: SweepConfig,
    sets: Sequence[TechniqueSet],
    searches: Sequence[BatchSizeSearch],
    cluster: Cluster,
    spent_seconds: float,
) -> RunRequest:
    differing = [axis for axis in sets[0].choices if len({str(s.choices[axis]) for s in sets}) > 1]
    # All trials of a set need the same operators and reservation: the trial of one sample names
    # them. A set that is ruled out has none.
    trials = [one.trial(config, 1, 1, has_gpu=cluster.gpus > 0) for one in sets]
    smallest = [trial for trial in trials if isinstance(trial, TrialSpec)]
    return RunRequest(
        config=config,
        verb=VERB,
        headline=f"now on {slots_in_words(cluster)}",
        search=RoundRobin(searches),
        is_wanted=lambda spec: any(search.knows(spec) for search in searches),
        axes=[*BATCH_AXES, *differing],
        needs=next((spec.needs for spec in smallest), None),
        to_build_for=smallest,
        spent_seconds=spent_seconds,
    )


def _search(
    one: TechniqueSet, config: SweepConfig, goal: BatchSizeGoal, part: Cluster
) -> BatchSizeSearch:
    has_gpu = part.gpus > 0
    make = partial(one.trial, config, has_gpu=has_gpu, relative_error=goal.tolerance)
    return BatchSizeSearch(make, goal, techniques=one.label, limited=has_gpu)
