"""The table beside a written configuration: what became of each key of the user's file."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from jobs.techniques import AXES
from orchestrator.planning.dialects.to_ours.models import Shape
from orchestrator.planning.dialects.trainers.tables import OFF, Verdict, spelt

QUANTIZED = re.compile(r"gptq|awq|aqlm|int4|bnb-?4bit|nf4|nvfp4|4bit")
"""Words of a model's name that say in which format of few bits its weights are."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One line of the table beside the written configuration."""

    key: str
    value: Any
    verdict: Verdict
    ours: str = ""
    """The key of our configuration that it decides."""
    taken: Any = None
    """The value that it has there."""
    why: str = ""


def finished(
    entry: Entry, facts: Mapping[str, Any], shape: Shape | None, document: Mapping[str, Any]
) -> Entry:
    """The entry with the value that its key has in the configuration, which ``facts`` made."""
    if entry.ours == "model.family":
        why = "it counts where the name of the model gives no family"
        return replace(entry, verdict=Verdict.ASIDE, ours="", why=why)
    if entry.ours == "model" and shape is not None:
        return _of_the_model(entry, shape)
    if not entry.ours or ", " in entry.ours or not document:
        return entry
    if value_at(entry.ours, document) is None:
        entry = replace(entry, ours=_ELSEWHERE.get(entry.ours, entry.ours))
    found = value_at(entry.ours, document)
    if entry.ours == "data" and facts.get("file"):
        return replace(entry, verdict=Verdict.TAKEN, taken=found, why="the file is here")
    if found is None and entry.verdict is Verdict.TAKEN:
        return _without_effect(entry)
    return replace(entry, taken=found)


_ELSEWHERE = {
    "data.synthetic.sequence_length": "data.file.max_length",
    "deepspeed": "axes.offload",
}
"""Key of ours -> the one that decides the same where the data set is here, or a file is not."""


def _of_the_model(entry: Entry, shape: Shape) -> Entry:
    why = shape.source
    if found := QUANTIZED.search(str(entry.value).lower()):
        why += f"; {found[0]} weights become a 4-bit base of bitsandbytes under an adapter"
    is_exact = shape.is_exact and why == shape.source
    verdict = Verdict.TAKEN if is_exact else Verdict.NEAREST
    return replace(entry, verdict=verdict, taken=shape.checkpoint or shape.architecture, why=why)


def _without_effect(entry: Entry) -> Entry:
    axis = AXES.get(entry.ours.removeprefix("axes."))
    # A switch that is off is the default of its axis.
    if axis is not None and spelt(entry.value) in ("full", *OFF):
        return replace(entry, taken=axis.default)
    why = "has no effect beside the other keys"
    return replace(entry, verdict=Verdict.ASIDE, ours="", why=why)


def value_at(key: str, document: Mapping[str, Any]) -> Any:
    found: Any = document
    for part in key.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found
