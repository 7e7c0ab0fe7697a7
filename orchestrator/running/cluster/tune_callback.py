"""Tune's ear for the session: every record as it arrives, every trial that has to be begun again or was given up."""

from __future__ import annotations

import json
import os
from collections import Counter
from typing import Any

from ray.tune.progress_reporter import TrialProgressCallback

from jobs.record import record_from_json
from jobs.spec import TrialSpec, spec_from_json
from orchestrator.running.cluster.not_kept import NotKept
from orchestrator.running.cluster.slot_actor import INFRASTRUCTURE_RETRIES, crashed
from orchestrator.running.nodes import Cluster
from orchestrator.running.session import Session


class Bookkeeper(NotKept, TrialProgressCallback):
    """Hands every record to the session as it arrives; a trial that Tune gave up on gets one too.

    In the place of Tune's own progress callback, which would keep every trial, and the last it said of it.
    """

    def __init__(self, session: Session, cluster: Cluster) -> None:
        super().__init__()
        self._session = session
        self._losses: Counter[str] = Counter()
        self._first: Any = None
        self._environment = next(
            (node.environment for node in cluster.nodes if node.gpus), cluster.nodes[0].environment
        )

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        # Taken out, for Tune keeps all results until it ends; whoever else reads the record comes before.
        if (record := result.pop("record", None)) is not None:
            self._session.ended(record_from_json(json.loads(record)))
        elif result.get("unwell"):
            self._session.returned(self._left(trial))
            trial.config["specs"] = []

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        # Tune keeps its trials until it ends. Left of each is what only it reads; what is alike in all is the first's.
        trial.metric_analysis.clear()  # 20 kB of statistics a trial
        trial.metric_n_steps.clear()
        trial.run_metadata.last_result = {}
        trial.last_result.clear()  # by now what its actor said of itself at first: Ray holds that until it is looked at
        trial.config.clear()
        trial.evaluated_params, trial.experiment_tag = {}, ""
        self._first = self._first or trial
        trial.run_metadata, trial.storage = self._first.run_metadata, self._first.storage

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Its actor died. What it had not ended is begun again in another of Tune's trials, but not for ever.

        Tune's own recovery would give up at once on a trial whose actor dies before it has begun.
        """
        left, error = self._left(trial), _actor_error(trial)
        for spec in left[:1]:  # the one that ran; those after it had not begun
            self._losses[spec.trial_id] += 1
            if self._losses[spec.trial_id] > INFRASTRUCTURE_RETRIES:
                self._session.ended(crashed(spec, error, self._environment))
            else:
                self._session.say(f"trial {spec.trial_id} is repeated: {error}")
        self._session.returned([spec for spec in left if spec.trial_id in self._session.running])

    def _left(self, trial: Any) -> list[TrialSpec]:
        """The trials of ours in one of Tune's that have not ended."""
        specs = (spec_from_json(json.loads(text)) for text in trial.config.get("specs", ()))
        return [spec for spec in specs if spec.trial_id in self._session.running]


def _actor_error(trial: Any) -> str:
    """The last line of what Tune keeps of an actor's end."""
    path = getattr(trial, "error_file", None)
    if path and os.path.exists(path):
        with open(path) as file:
            lines = [line.strip() for line in file if line.strip()]
        if lines:
            return lines[-1][:500]
    return "the actor died"
