"""Answers questions about the installed libraries: reads a list of them from stdin as JSON, and
prints the list of answers.

``{"classes": [...]}`` asks for all facts of ``collected.py``, ``{"model": {...}}`` for the size of
a model, and with ``"change"``, a list of hooks, for why these are refused.
"""

import json
import os
import sys
from collections.abc import Iterable
from typing import Any

from jobs.node.processes import end_with_parent
from jobs.spec import Hook, ModelSpec


def answers(questions: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The answers as JSON values."""
    return list(map(_answer, questions))


def _answer(question: dict[str, Any]) -> dict[str, Any]:
    if "model" not in question:
        from jobs.library_facts.collected import collected

        return collected(question["classes"])
    model = ModelSpec(**question["model"])
    if "change" not in question:
        from jobs.library_facts.model_size import size_of

        return size_of(model)
    from jobs.library_facts.model_size import refusal

    return refusal(model, [Hook(**own) for own in question["change"]])


if __name__ == "__main__":
    # An absurd number of layers takes minutes and gigabytes, which serve nothing without an asker.
    end_with_parent(os.getppid())
    print(json.dumps(answers(json.load(sys.stdin))))
