"""What several tests of the planning wing share."""

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.planning.settings import SweepConfig
from tests.support.config_files import config_of


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., SweepConfig]:
    """Load a configuration from its text, a model added in the first line."""
    return functools.partial(config_of, tmp_path)
