"""Answers one question about the installed libraries: reads JSON from stdin, prints JSON.

``{"classes": [...]}`` asks for all facts of ``collected.py``, ``{"model": {...}}`` for the size of
a model, and with ``"changes"``, lists of hooks, for why each of these is refused.
"""

import json
import os
import sys
from typing import Any

from jobs.node.processes import end_with_parent
from jobs.spec import Hook, ModelSpec


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """The answer as JSON values."""
    if "changes" in question:
        from jobs.library_facts.refusals import refusals

        changes = [[Hook(**own) for own in hooks] for hooks in question["changes"]]
        return refusals(ModelSpec(**question["model"]), changes)
    if "model" in question:
        from jobs.library_facts.model_size import size_of

        return size_of(ModelSpec(**question["model"]))
    from jobs.library_facts.collected import collected

    return collected(question["classes"])


if __name__ == "__main__":
    # An absurd number of layers takes minutes and gigabytes, which serve nothing without an asker.
    end_with_parent(os.getppid())
    print(json.dumps(answer(json.load(sys.stdin))))
