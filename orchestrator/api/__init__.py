"""The Python API: the verbs as functions, and a run as an object with methods."""

from __future__ import annotations

from orchestrator.api.run import Answer, NothingMeasuredError, Picture, Run, load, local_folder
from orchestrator.api.verbs import (
    Predictions,
    SweepFailedError,
    compare,
    explain,
    predict,
    recommend,
    sweep,
)
from orchestrator.distribution import tool_version

__version__ = tool_version()

__all__ = [
    "Answer",
    "NothingMeasuredError",
    "Picture",
    "Predictions",
    "Run",
    "SweepFailedError",
    "__version__",
    "compare",
    "explain",
    "load",
    "local_folder",
    "predict",
    "recommend",
    "sweep",
]
