"""A trial's identity: a digest of what is trained and measured, and of nothing else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from jobs.spec.plain_json import changed_fields, without_defaults

_DIGITS = 12
"""Hexadecimal digits of an identity. Among 20,000 trials, two collide with a chance of 1 in a
million."""
_LEFT_OUT = frozenset(("choices", "needs", "training_recipe"))
_latest: dict[str, tuple[object, Any]] = {}
"""Field -> its latest object, and that object as JSON. The trials of a plan share their model, data
and measurement, so these are converted once."""


def identity(spec: Any, *, choices: Mapping[str, Any]) -> str:
    """The digest of a ``TrialSpec``, as hexadecimal digits; ``choices`` are its choices.

    Fields at their defaults are left out, so that a new field with a default renames no trial. The
    choices are left out, too, because ``settings`` holds what they decide. Only micro-batch and
    accumulation are included: an accumulation that is not a whole number is in no settings.
    """
    content = {}
    for name, value in changed_fields(spec):
        if name in _LEFT_OUT:
            continue
        known = _latest.get(name)
        if known is None or known[0] is not value:
            known = _latest[name] = (value, without_defaults(value))
        content[name] = known[1]
    if "measure" in content:
        measure = content["measure"]
        content["measure"] = {key: measure[key] for key in measure if key != "timeout_seconds"}
    content["batch"] = [choices.get("micro_batch"), choices.get("accumulation")]
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
