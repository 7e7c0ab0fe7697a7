"""The driver: it plans, schedules, collects, analyses and reports; it needs no GPU.

In a notebook::

    import orchestrator

    run = orchestrator.load("runs/bert_large")            # shows its frontier
    answer = run.recommend(memory_bytes=24 * 2**30)       # shows what to train with
    run.export(answer.best, "my_training")                # writes train.py and its settings
    run.compare(orchestrator.load("runs/bert_large_2"))   # what changed
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.api import Run, load

__all__ = ["Run", "load"]


def __getattr__(name: str) -> Any:
    """The names of ``__all__``, imported when first asked for, so that the verbs stay instant."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from orchestrator import api

    return getattr(api, name)
