"""The verbs as functions, which return objects instead of printing."""

from __future__ import annotations

import html
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.analysis.comparison import Comparison
from orchestrator.analysis.explanation import Explanation
from orchestrator.api.run import Answer, Run, load
from orchestrator.storage.location import Location, Uri, location
from orchestrator.units import duration_seconds

if TYPE_CHECKING:
    import pandas

    from orchestrator.planning.settings import SweepConfig
    from orchestrator.prediction.prediction import Prediction

RunLike = Run | Location | str
"""A run, its folder or its URI."""


class SweepFailedError(RuntimeError):
    """No trial of a sweep ended ok. The message says why; the run folder holds all records."""


def sweep(
    config: Path | str,
    *,
    output: Location | str | None = None,
    time_budget: float | str | None = None,
    resume: bool = False,
    fresh: bool = False,
    force: bool = False,
    address: str | None = None,
    trust_remote_code: bool = False,
    allow_own_code: bool = False,
) -> Run:
    """Measure every configuration of a sweep, write its tables and pages, and return the run.

    ``time_budget`` is seconds, or text such as "15m". ``output`` replaces the configuration's run
    folder. The other arguments are the options of ``python -m orchestrator.sweep``. An interrupted
    sweep returns what was measured until then. Raises ConfigError, LoggerError, ClusterError,
    NoSuchGpuError, RunFolderError, FileExistsError, NothingToResumeError or SweepFailedError.
    """
    from orchestrator.planning.loggers import refuse_missing
    from orchestrator.reporting.publish import publish
    from orchestrator.running.options import RunOptions
    from orchestrator.running.run_lock import locked_run_folder
    from orchestrator.running.sweep_run import run_sweep

    checked = _checked(
        config,
        address,
        trust_remote_code=trust_remote_code,
        allow_own_code=allow_own_code,
    )
    refuse_missing(checked.loggers)
    seconds = None
    if time_budget is not None:
        seconds = duration_seconds(time_budget)
    options = RunOptions(
        address=address, time_budget_seconds=seconds, resume=resume, fresh=fresh, force=force
    )
    target = _target(output, checked)
    with locked_run_folder(target, resume=resume, force=force) as folder:
        end = run_sweep(checked, options, folder)
        publish(folder.path)
        if end.failure and not end.is_interrupted:
            raise SweepFailedError(end.failure)
        return load(folder.path)


def predict(
    config: Path | str,
    *,
    gpu: str = "h200",
    trials: Sequence[str] = (),
    trust_remote_code: bool = False,
    allow_own_code: bool = False,
) -> Predictions:
    """Predict the memory of the trials of a sweep, without a GPU.

    ``trials`` are beginnings of trial ids. All trials are predicted if it is empty. Raises
    ConfigError, and ValueError if the GPU has no constants or no trial matches one of ``trials``.
    """
    from orchestrator.planning.plan import plan, trials_with_ids
    from orchestrator.prediction.estimator import predict as estimate
    from orchestrator.prediction.gpus import load_gpu
    from orchestrator.prediction.libraries import without_gpus

    checked = _checked(
        config, None, trust_remote_code=trust_remote_code, allow_own_code=allow_own_code
    )
    gpu_constants = load_gpu(gpu)
    chosen = trials_with_ids(plan(checked).trials, trials)
    with without_gpus():
        predictions = tuple(estimate(chosen, gpu_constants))
    return Predictions(config=checked, gpu=gpu_constants.name, predictions=predictions)


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Predictions:
    """The predicted memory of a sweep's trials. Its text is a table."""

    config: SweepConfig
    gpu: str
    """Name of the GPU that the predictions are for."""
    predictions: tuple[Prediction, ...]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row per trial: bytes as integers, None if unknown."""
        from orchestrator.reporting.prediction import row

        return [row(prediction) for prediction in self.predictions]

    def to_pandas(self) -> pandas.DataFrame:
        """One row per trial."""
        import pandas

        return pandas.DataFrame(self.rows)

    def __len__(self) -> int:
        return len(self.predictions)

    def __repr__(self) -> str:
        from orchestrator.reporting.prediction import labels, table

        return table(self.predictions, labels(self.predictions, self.config))

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"


def recommend(
    run: RunLike,
    *,
    memory: int | str | None = None,
    effective_batch: int | None = None,
    all_recipes: bool = False,
    objective: str = "samples_per_second",
    price_per_hour: float | None = None,
) -> Answer:
    """The best configuration of a run under constraints; see ``Run.recommend``.

    ``memory`` is bytes, or text such as "24GiB". Raises what ``load`` and ``Run.recommend`` raise.
    """
    return _run(run).recommend(
        memory=memory,
        effective_batch=effective_batch,
        all_recipes=all_recipes,
        objective=objective,
        price_per_hour=price_per_hour,
    )


def compare(before: RunLike, after: RunLike) -> Comparison:
    """How the configurations of two runs differ. Raises what ``load`` raises."""
    return _run(before).compare(_run(after))


def explain(run: RunLike, before: str, after: str) -> Explanation:
    """Why one trial of a run differs from another. Both are given as a trial id or its beginning.

    Raises what ``load`` raises, LookupError or NotExplainableError.
    """
    return _run(run).explain(before, after)


def _run(run: RunLike) -> Run:
    if isinstance(run, Run):
        return run
    return load(run)


def _checked(
    path: Path | str, address: str | None, *, trust_remote_code: bool, allow_own_code: bool
) -> SweepConfig:
    """Load a configuration and check its files. Its notes become warnings. Raises ConfigError."""
    from orchestrator.planning.config import load_config
    from orchestrator.planning.prechecks.checks import check_files
    from orchestrator.running.ray_address import is_elsewhere

    config = load_config(path, trust_remote_code=trust_remote_code, allow_own_code=allow_own_code)
    notes = check_files(config, runs_elsewhere=is_elsewhere(address), asks_hub=True)
    for note in (*config.notes, *notes):
        warnings.warn(note, stacklevel=3)
    return config


def _target(output: Location | str | None, config: SweepConfig) -> Location:
    if output is None:
        return config.output
    if isinstance(output, Uri):
        return output
    return location(output)
