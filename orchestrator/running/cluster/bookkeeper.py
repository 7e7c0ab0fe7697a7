"""Tune's ear for the session: every record as it arrives, every trial that has to be begun again or was given up."""

from __future__ import annotations

import json
import os
from collections import Counter
from typing import Any

from ray import tune

from jobs.record import record_from_json
from jobs.spec import TrialSpec, spec_from_json
from orchestrator.running.cluster.roster import NotKept, Roster
from orchestrator.running.cluster.slot_actor import GpuLostError, crashed
from orchestrator.running.nodes import Cluster
from orchestrator.running.session import Session

_PATIENCE = 10
"""How often a trial may be sent to lost GPUs, beside its retries."""


class SecondsLeft:
    """The time budget's rest, looked at when a trial is sent to its actor: no two machines' clocks are compared."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __reduce__(self) -> tuple[type[float], tuple[float]]:
        return float, (self._session.seconds_left(),)

    def __deepcopy__(self, memo: dict[int, Any]) -> SecondsLeft:
        return self


class Bookkeeper(NotKept, tune.Callback):
    """Hands every record to the session as it arrives; a trial that Tune gave up on gets one too."""

    def __init__(self, session: Session, cluster: Cluster, roster: Roster) -> None:
        self._session = session
        self._roster = roster
        self._sent_astray: Counter[str] = Counter()
        self._environment = next(
            (node.environment for node in cluster.nodes if node.gpus), cluster.nodes[0].environment
        )

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        # Taken out, for Tune keeps all results until it ends; whoever else reads the record comes before.
        if (record := result.pop("record", None)) is not None:
            self._session.ended(record_from_json(json.loads(record)))

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        trial.metric_analysis.clear()  # 20 kB of statistics a trial, which Tune keeps and nobody reads
        trial.metric_n_steps.clear()

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        error = trial.get_pickled_error()
        if isinstance(cause := getattr(error, "cause", None), GpuLostError):
            self._roster.withdraw_gpu(cause.node_id)
            self._sent_astray[trial.trial_id] += 1
            # The trial was not even begun: being sent there before the GPU is withdrawn is no failure of its.
            if self._sent_astray[trial.trial_id] <= _PATIENCE:
                trial.run_metadata.num_failures -= 1
        for spec in self._running(trial):
            self._session.repeated(spec, str(cause or _actor_error(trial)))

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        for spec in self._running(trial):
            self._session.ended(crashed(spec, _actor_error(trial), self._environment))

    def _running(self, trial: Any) -> list[TrialSpec]:
        """The trials of ours in one of Tune's that have not ended."""
        specs = (spec_from_json(json.loads(text)) for text in trial.config["specs"])
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
