"""Configuration files of a few lines, loaded."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from orchestrator.planning.config import load_config
from orchestrator.planning.settings import SweepConfig
from tests.support.commands import ROOT

SHIPPED = sorted((ROOT / "configs").glob("*.yaml"))
MODEL = "model: {task: causal-lm, architecture: llama}\n"


def config_of(
    folder: Path, text: str = "", *, choices: Sequence[str] = (), **keys: Any
) -> SweepConfig:
    """The configuration of a file with this text and these keys; without a model, of a Llama.
    ``choices`` are those of ``--set``."""
    written = text + (yaml.safe_dump(keys, sort_keys=False) if keys else "")
    path = folder / "sweep.yaml"
    path.write_text(written if "\nmodel:" in f"\n{written}" else MODEL + written)
    return load_config(path, choices=choices)
