"""Refuses secrets in a configuration: records, tables and scripts hold its values as given."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from orchestrator.planning.document import Part
from orchestrator.planning.problems import Problem
from orchestrator.storage.redaction import secret_paths

_MESSAGE = (
    "looks like a secret, and records, tables and exported scripts would show it; remove it, and"
    " give it in the environment (HF_TOKEN is the Hub's token)"
)


def secret_problems(part: Part, *, except_keys: Collection[str] = ()) -> Iterator[Problem]:
    """A problem for each value that looks like a secret.

    ``except_keys``: keys at the top whose values reach no record.
    """
    for key, value in part.value.items():
        if key not in except_keys:
            for at in secret_paths({key: value}):
                yield part.problem(at, _MESSAGE)
