"""Trials as TensorBoard event files: a folder per trial in the run folder."""

from pathlib import Path

from tensorboardX import SummaryWriter
from tensorboardX.summary import hparams

from orchestrator.running.observers.loggers import LoggedTrial


class TensorBoardLogger:
    """Writes each trial's metrics as scalars, and its choices as hyperparameters."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def log(self, trial: LoggedTrial) -> None:
        # TensorBoard has no empty value.
        parameters = {
            name: "" if value is None else value for name, value in trial.parameters.items()
        }
        with SummaryWriter(logdir=str(self._folder / trial.trial_id)) as writer:
            for name, value in trial.metrics.items():
                writer.add_scalar(name, value, 0)
            # ``add_hparams`` would write the hyperparameters to a separate folder.
            for summary in hparams(parameters, dict(trial.metrics)):
                writer.file_writer.add_summary(summary)
