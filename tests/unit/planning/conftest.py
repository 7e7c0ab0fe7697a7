"""What several tests of the planning wing share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.planning.config import load_config
from orchestrator.planning.settings import SweepConfig

MODEL = "model: {task: causal-lm, architecture: llama}\n"


@pytest.fixture
def load(tmp_path: Path) -> Callable[[str], SweepConfig]:
    """Load a configuration from its text, a model added in the first line."""

    def load(text: str) -> SweepConfig:
        path = tmp_path / "sweep.yaml"
        path.write_text(MODEL + text)
        return load_config(path)

    return load
