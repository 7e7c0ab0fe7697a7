"""Trials as runs of an MLflow experiment."""

import time
from collections.abc import Mapping
from pathlib import Path

from mlflow.entities import Metric, Param, RunTag
from mlflow.tracking import MlflowClient

from orchestrator.running.observers.loggers import LoggedTrial


class MlflowLogger:
    """Creates a run per trial. Credentials come from the environment, as MLflow reads them."""

    def __init__(
        self,
        folder: Path,
        *,
        experiment_name: str,
        tracking_uri: str | None = None,
        registry_uri: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """``folder`` is not used: MLflow writes where ``tracking_uri`` says, else ./mlruns."""
        self._tags = [RunTag(name, str(value)) for name, value in (tags or {}).items()]
        self._client = MlflowClient(tracking_uri, registry_uri)
        found = self._client.get_experiment_by_name(experiment_name)
        made = None if found else self._client.create_experiment(experiment_name)
        self._experiment_id = found.experiment_id if found else made

    def log(self, trial: LoggedTrial) -> None:
        # MLflow wants Unix time in whole milliseconds. A trial that never started has no time.
        started_ms = round(1000 * (trial.started_at or time.time()))
        ended_ms = max(started_ms, round(1000 * trial.ended_at))
        metrics = [Metric(name, value, ended_ms, 0) for name, value in trial.metrics.items()]
        params = [Param(name, str(value)) for name, value in trial.parameters.items()]
        run_id = self._client.create_run(
            self._experiment_id, start_time=started_ms, run_name=trial.name
        ).info.run_id
        self._client.log_batch(run_id, metrics=metrics, params=params, tags=self._tags)
        status = "FINISHED" if trial.is_ok else "FAILED"
        self._client.set_terminated(run_id, status=status, end_time=ended_ms)
