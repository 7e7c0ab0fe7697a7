"""A trial's identity: a digest of what is trained and measured, and of nothing else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from jobs.spec.plain_json import without_defaults

_DIGITS = 12
"""Hexadecimal digits of an identity. Among 20,000 trials, two collide with a chance of 1 in a
million."""


def identity(spec: Any, *, choices: Mapping[str, Any]) -> str:
    """The digest of a ``TrialSpec``, as hexadecimal digits; ``choices`` are its choices.

    Fields at their defaults are left out, so that a new field with a default renames no trial. The
    choices are left out, too, because ``settings`` holds what they decide. Only micro-batch and
    accumulation are included: an accumulation that is not a whole number is in no settings.
    """
    content = without_defaults(spec)
    for name in ("choices", "needs", "training_recipe"):
        content.pop(name, None)
    content.get("measure", {}).pop("timeout_seconds", None)
    content["batch"] = [choices.get("micro_batch"), choices.get("accumulation")]
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
