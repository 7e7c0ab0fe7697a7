"""The Python interface: every verb as a function, and a run as an object with methods.

verbs.py        sweep, tune, batch_size, recommend, compare, explain, report, doctor, init ...
predictions.py  predict, and what it returns
forecasts.py    what tune would find, and what several GPUs would bring, without them
run.py          a run, and what it answers; picture.py for its picture
"""

from orchestrator.api.picture import Picture
from orchestrator.api.predictions import Predictions, predict
from orchestrator.api.run import Answer, NothingMeasuredError, Run, load, local_folder
from orchestrator.api.verbs import (
    SweepFailedError,
    batch_size,
    compare,
    completion,
    doctor,
    explain,
    init,
    recommend,
    report,
    sweep,
    tune,
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
    "batch_size",
    "compare",
    "completion",
    "doctor",
    "explain",
    "init",
    "load",
    "local_folder",
    "predict",
    "recommend",
    "report",
    "sweep",
    "tune",
]
