"""Batch-size searches carried out: one a technique set, all of them at once on the slots of one kind of GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from jobs.spec import TrialSpec
from orchestrator.analysis.batch_size import Answer
from orchestrator.planning.settings import SweepConfig
from orchestrator.planning.technique_sets import TechniqueSet
from orchestrator.running import lifecycle
from orchestrator.running.nodes import Cluster
from orchestrator.running.progress import Progress
from orchestrator.running.session import Session
from orchestrator.search.batch_size.search import BatchSize
from orchestrator.search.round_robin import Together
from orchestrator.storage.run_folder import RunFolder


@dataclass(frozen=True, kw_only=True, slots=True)
class Tuned:
    """What came of one kind of GPU; the records are in the folder."""

    hardware: str
    folder: RunFolder
    answers: tuple[Answer, ...]
    """One a technique set, in their order."""
    interrupted: bool

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        answers = [answer.to_json() for answer in self.answers]
        return {"hardware": self.hardware, "folder": str(self.folder.path), "answers": answers}


class Tuning:
    """A config's technique sets, to be tuned on one cluster after another; ``options`` are those of BatchSize."""

    def __init__(
        self, config: SweepConfig, sets: Sequence[TechniqueSet], options: Mapping[str, Any]
    ) -> None:
        self._config, self._sets, self._options = config, sets, options

    def run(
        self,
        cluster: Cluster,
        folder: RunFolder,
        progress: Progress,
        *,
        time_budget_seconds: float | None,
        resume: bool,
        fresh: bool,
    ) -> Tuned:
        """Tune every set on GPUs of one kind, or on machines without."""
        searches = self._searches(has_gpu=cluster.gpus > 0)
        earlier = lifecycle.still_wanted(
            folder, lambda spec: any(s.knows(spec) for s in searches), fresh=fresh
        )
        session = Session(
            Together(searches), folder, progress, time_budget_seconds=time_budget_seconds
        )
        lifecycle.show(progress, lifecycle.opening(cluster, folder, time_budget_seconds))
        session.reuse(earlier, (node.environment for node in cluster.nodes), resume=resume)
        smallest = (one.trial(self._config, 1, 1, has_gpu=cluster.gpus > 0) for one in self._sets)
        like = [trial for trial in smallest if isinstance(trial, TrialSpec)]
        needs = like[0].needs if like else None
        run = lifecycle.run_json(self._config, "batch_size")
        lifecycle.measure(
            session,
            cluster,
            folder,
            like=like,
            needs=needs,
            run=run,
            trackers=self._config.trackers,
        )
        lifecycle.show(progress, lifecycle.kept(session))
        return Tuned(
            hardware=cluster.hardware,
            folder=folder,
            answers=tuple(search.answer for search in searches),
            interrupted=session.interrupted,
        )

    def _searches(self, *, has_gpu: bool) -> list[BatchSize]:
        return [
            BatchSize(
                partial(
                    one.trial,
                    self._config,
                    has_gpu=has_gpu,
                    relative_error=self._options["tolerance"],
                ),
                techniques=one.label,
                limited=has_gpu,
                **self._options,
            )
            for one in self._sets
        ]
