"""How many parameters a model has: counted once in a process of its own, then remembered.

Counting builds the model without memory, which imports torch and transformers: ten seconds. The
models of the shipped configurations are counted in ``shipped_sizes.json``, so that a dry run of
them is instant; every other is counted when it is first met. The file is written by

    python -m tests.support.shipped_sizes configs/*.yaml
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from jobs.spec import ModelSpec, to_json
from orchestrator.planning.library_facts import NoAnswerError, answer_of, digest

_SHIPPED = Path(__file__).with_name("shipped_sizes.json")


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSize:
    """A model's size, or why it has none."""

    parameters: int | None = None
    """All of them, tied weights once; None if they could not be counted."""
    mistake: str = ""
    """Why transformers refuses to build the model: a value of its configuration is wrong."""
    reason: str = ""
    """Why the parameters could not be counted although nothing may be wrong."""


def model_size(model: ModelSpec, say: Callable[[str], object]) -> ModelSize:
    """The size of a model. ``say`` is called with a note first if counting takes some seconds."""
    if model.trust_remote_code:
        return ModelSize(reason="the checkpoint builds its model by code of its own")
    shipped = json.loads(_SHIPPED.read_text(encoding="utf-8"))
    if digest(to_json(model)) in shipped:
        return ModelSize(parameters=shipped[digest(to_json(model))])
    name = model.architecture or model.name_or_path
    note = f"counting the parameters of {name}, once for this model (about ten seconds)"
    try:
        question = {"model": to_json(model), "changed_at": _changed_at(model)}
        return ModelSize(**answer_of(question, note, say))
    except (NoAnswerError, TypeError) as error:
        return ModelSize(reason=str(error))


def _changed_at(model: ModelSpec) -> int:
    """When the configuration of a checkpoint in a folder changed; it may keep its name."""
    if model.name_or_path is not None:
        with contextlib.suppress(OSError):
            return Path(model.name_or_path, "config.json").stat().st_mtime_ns
    return 0
