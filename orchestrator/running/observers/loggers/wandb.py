"""Trials as runs of a Weights & Biases project."""

from pathlib import Path
from typing import Any

import wandb

from orchestrator.running.observers.loggers import LoggedTrial


class WandbLogger:
    """Creates a run per trial. Credentials come from the environment, as wandb reads them."""

    def __init__(self, folder: Path, **arguments: Any) -> None:
        """``arguments`` are those of ``wandb.init``; ``folder`` is where wandb keeps its files."""
        self._arguments = {"dir": str(folder), **arguments}
        folder.mkdir(parents=True, exist_ok=True)  # else wandb takes a temporary folder
        if arguments.get("mode") not in ("offline", "disabled"):
            wandb.login()

    def log(self, trial: LoggedTrial) -> None:
        run = wandb.init(name=trial.name, config=dict(trial.parameters), **self._arguments)
        run.log(dict(trial.metrics))
        run.finish(exit_code=int(not trial.is_ok))
