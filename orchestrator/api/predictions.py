"""Predicting without a GPU, as a function, and the predictions as a table that shows itself."""

from __future__ import annotations

import html
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas

    from jobs.spec import TrialSpec
    from orchestrator.planning.settings import SweepConfig
    from orchestrator.prediction.prediction import Prediction


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
    from orchestrator.running.early_start import checked_config
    from orchestrator.running.options import VerbOptions

    options = VerbOptions(
        config=Path(config), trust_remote_code=trust_remote_code, allow_own_code=allow_own_code
    )
    checked = checked_config(options, warnings.warn)
    return predicted(checked, trials_with_ids(plan(checked).trials, trials), gpu)


def predicted(config: SweepConfig, trials: Sequence[TrialSpec], gpu: str) -> Predictions:
    """As ``predict``, for trials of a checked configuration.

    Raises ValueError if the GPU has no constants.
    """
    from orchestrator.prediction.estimator import predict as estimate
    from orchestrator.prediction.gpus import load_gpu
    from orchestrator.prediction.libraries import without_gpus

    constants = load_gpu(gpu)
    # torch and transformers are imported in here, so that they see no GPU.
    with without_gpus():
        predictions = tuple(estimate(trials, constants))
    return Predictions(config=config, gpu=constants.name, predictions=predictions)


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
        from orchestrator.reporting.verbs.prediction import row

        return [row(prediction) for prediction in self.predictions]

    def to_pandas(self) -> pandas.DataFrame:
        """One row per trial."""
        import pandas

        return pandas.DataFrame(self.rows)

    def __len__(self) -> int:
        return len(self.predictions)

    def __repr__(self) -> str:
        from orchestrator.reporting.verbs.prediction import table

        return table(self.predictions, self.config.axes_in_play)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"
