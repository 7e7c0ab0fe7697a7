"""Plan, schedule, collect, decide and report: the driver, which needs no GPU.

sweep.py, report.py, recommend.py, compare.py ...    the verbs: ``python -m orchestrator.<verb>``, thin as a door
planning/                YAML -> validated config -> trial specs, with the rules that rule combinations out
search/                  ask/tell over planned trials: pure, replayable, no Ray
running/                 Ray Tune, the run folder, progress
results/                 records -> Arrow tables -> frontier -> ranking -> pages

In a notebook::

    import orchestrator

    run = orchestrator.load("runs/bert_large")            # shows its frontier
    answer = run.recommend(memory_bytes=24 * 2**30)       # shows what to train with
    run.export(answer.best, "my_training")                # writes train.py and its settings
    run.compare(orchestrator.load("runs/bert_large_2"))   # shows what changed
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.api import MeasuredRun, load

__all__ = ["MeasuredRun", "load"]


def __getattr__(name: str) -> Any:
    """The names of ``__all__``, imported when first asked for, so that the verbs stay instant."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from orchestrator import api

    return getattr(api, name)
