"""Measures training configurations and maps their memory/speed frontier; the driver needs no GPU.

Every verb of the command line is a function here, and a run is an object to ask::

    import orchestrator

    run = orchestrator.sweep("configs/quickstart.yaml")   # measures, and returns the run
    run = orchestrator.load("runs/bert_large")            # a run that was measured before
    answer = run.recommend(memory="24GiB")                # shows what to train with
    run.export(answer.best, "my_training")                # writes train.py and its settings
    run.plot()                                            # the frontier as a picture
    run.to_pandas()                                       # one row per trial
    orchestrator.compare(run, "runs/bert_large_2")        # what changed
    orchestrator.predict("configs/bert_large.yaml")       # memory, without a GPU
"""

from __future__ import annotations

import gc
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.api import (
        Answer,
        Picture,
        Predictions,
        Run,
        SweepFailedError,
        __version__,
        compare,
        explain,
        load,
        predict,
        recommend,
        sweep,
    )

_VERBS = ("compare", "explain", "predict", "recommend", "sweep")
"""Functions that share their name with the module of a verb. The module itself can be called."""

__all__ = [
    "Answer",
    "Picture",
    "Predictions",
    "Run",
    "SweepFailedError",
    "__version__",
    "compare",
    "explain",
    "load",
    "predict",
    "recommend",
    "sweep",
]


def __getattr__(name: str) -> Any:
    """A name of ``__all__``, imported at first use so that the command line starts fast."""
    if name in _VERBS:
        # The import makes the module an attribute of this package.
        return importlib.import_module(f"orchestrator.{name}")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("orchestrator.api"), name)


def __dir__() -> list[str]:
    return sorted({*__all__, "__doc__", "__file__", "__name__", "__path__"})


def _import_own_jobs() -> None:
    """Import the package ``jobs`` that lies beside this one, never another of the same name.

    Python would find another first: ``python -m orchestrator.VERB`` looks into the working folder
    first. A Ray worker looks into the folder that the sweep was started in. Raises ImportError if
    another ``jobs`` is imported already.
    """
    folder = Path(__file__).resolve().parents[1] / "jobs"
    imported = sys.modules.get("jobs")
    if imported is not None:
        if folder in [Path(path).resolve() for path in getattr(imported, "__path__", ())]:
            return
        raise ImportError(
            f"another package jobs is imported already ({imported}); orchestrator brings its own: "
            "import orchestrator first, or rename yours"
        )
    spec = importlib.util.spec_from_file_location("jobs", folder / "__init__.py")
    # Some installations keep the two packages apart. There the ordinary import finds ``jobs``.
    if spec is None or spec.loader is None or not (folder / "__init__.py").exists():
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["jobs"] = module
    spec.loader.exec_module(module)


# Loading modules makes much and leaves no garbage, but the collector looks at all of it again and
# again: a seventh of a dry run. ``cli.finish`` starts it again, before a verb does anything. While
# Python looks for the module of ``python -m``, the first argument is "-m".
if sys.argv[:1] == ["-m"]:
    gc.disable()
_import_own_jobs()
