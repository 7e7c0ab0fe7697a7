"""How many parameters a model has: counted once in a process of its own, then remembered.

Counting builds the model without memory, which imports torch and transformers: ten seconds. The
models of the shipped configurations are counted in ``shipped_sizes.json``, so that a dry run of
them is instant; every other is counted when it is first met. The file is written by

    python -m tests.support.shipped_sizes configs/*.yaml
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from jobs.spec import ModelSpec, to_json
from orchestrator.planning.child_process import ChildError, answer_of
from orchestrator.storage.layout import written_beside

_COUNTER = "orchestrator.prediction.model_size"
"""The module that counts: a process of its own, because planning never imports torch."""
_COUNT_SECONDS = 180.0
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
    size = known_size(model)
    if size is not None:
        return size
    name = model.architecture or model.name_or_path
    say(f"counting the parameters of {name}, once for this model (about ten seconds)")
    size = counted(model)
    if not size.reason:
        _remember(model, size)
    return size


def known_size(model: ModelSpec) -> ModelSize | None:
    """A size that was counted before; None for a model that was not."""
    shipped = json.loads(_SHIPPED.read_text(encoding="utf-8"))
    parameters = shipped.get(digest(model))
    if parameters is not None:
        return ModelSize(parameters=parameters)
    try:
        content = json.loads(_memory(model).read_text(encoding="utf-8"))
        return ModelSize(**content)
    except (OSError, ValueError, TypeError):
        return None


def digest(model: ModelSpec, *versions: str) -> str:
    """A name for a model as its configuration says; ``versions`` of what builds it are part."""
    text = json.dumps([to_json(model), *versions], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def counted(model: ModelSpec) -> ModelSize:
    """The size of a model by building it without memory, in a process of its own."""
    try:
        answer = answer_of(_COUNTER, to_json(model), timeout_seconds=_COUNT_SECONDS)
        return ModelSize(**answer)
    except (ChildError, TypeError) as error:
        return ModelSize(reason=str(error))


def _memory(model: ModelSpec) -> Path:
    """The file that remembers a count made with the installed transformers."""
    try:
        library = version("transformers")
    except PackageNotFoundError:
        library = "none"
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    # A folder's config.json may change under the same name.
    changed = ""
    if model.name_or_path:
        with contextlib.suppress(OSError):
            changed = str(Path(model.name_or_path, "config.json").stat().st_mtime_ns)
    return Path(cache, "orchestrator", "model_sizes", f"{digest(model, library, changed)}.json")


def _remember(model: ModelSpec, size: ModelSize) -> None:
    """Write a count down; a home folder that cannot be written costs only another count."""
    path = _memory(model)
    content: dict[str, Any] = {"parameters": size.parameters, "mistake": size.mistake}
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_beside(path) as partial:
            partial.write_text(json.dumps(content), encoding="utf-8")
