"""The table beside a written configuration: what became of each key of the user's file."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from jobs.techniques import AXES
from orchestrator.planning.dialects.shell import is_unset
from orchestrator.planning.dialects.to_ours import facts as vocabulary
from orchestrator.planning.dialects.to_ours.model_shapes import ModelShape
from orchestrator.planning.dialects.trainers.tables import (
    NOT_HERE,
    OFF,
    UNKNOWN,
    Dialect,
    Reading,
    Rule,
    Verdict,
    spelt,
)
from orchestrator.storage.redaction import secret_paths

QUANTIZED = re.compile(r"gptq|awq|aqlm|int4|bnb-?4bit|nf4|nvfp4|4bit")
"""Words of a model's name that say in which format of few bits its weights are."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyEntry:
    """One line of the table beside the written configuration."""

    key: str
    value: Any
    verdict: Verdict
    ours: str = ""
    """The key of our configuration that it decides."""
    taken: Any = None
    """The value that it has there."""
    why: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What the key states."""


def entries_of(dialect: Dialect, content: Mapping[str, Any]) -> Iterator[KeyEntry]:
    """Every key of a file with what it says, in the file's order."""
    if dialect.whole:
        facts, ours = {dialect.whole: content}, vocabulary.ours(dialect.whole)
        yield KeyEntry(key="all of it", value="...", verdict=Verdict.TAKEN, ours=ours, facts=facts)
        return
    for key, value in _flat(dialect, content):
        if any(secret_paths({key: value})):
            value = "***"  # the table is written to a file
        rule, given = dialect.rule(key), value
        if rule is UNKNOWN and value is True and key.startswith("no_"):
            # A command's switch that turns off what is on by default.
            rule, given = dialect.rule(key.removeprefix("no_")), False
        elif isinstance(value, str) and is_unset(value):
            given = value.rpartition("/")[2]  # a name in a folder that is not known
        reading = rule.read(given)
        ours = ", ".join(dict.fromkeys(map(vocabulary.ours, reading.facts)))
        if reading.verdict is Verdict.UNKNOWN and _OTHER_TRAINING.search(key):
            reading = Rule(why=f"{reading.why}, {_OTHER}", is_blocking=True).read(value)
        elif why := _uncertain(reading, given):
            reading = Reading(verdict=Verdict.UNKNOWN, why=why)
        yield KeyEntry(key=key, value=value, ours=ours, **asdict(reading))


_COUNTS = ("micro_batch", "accumulation", "length", "target_length")


def _uncertain(reading: Reading, value: Any) -> str:
    """Why nothing is taken from a key; empty: it is taken as it was read."""
    if reading.verdict is not Verdict.ASIDE and is_unset(value):
        return "an unresolved variable or expression of the shell, so it counts as not given"
    counts = (reading.facts.get(fact, 0) for fact in _COUNTS)
    return "" if all(type(count) is int for count in counts) else "no whole number"


def or_overruled(entry: KeyEntry, deciding: Mapping[str, KeyEntry]) -> KeyEntry:
    """The entry, which is overruled if other keys decide all that it states."""
    final = [(deciding[fact], deciding[fact].facts[fact], own) for fact, own in entry.facts.items()]
    if not final or any(isinstance(value, Mapping) or value == own for _, value, own in final):
        return entry
    why = f"{final[0][0].key}: {final[0][0].value} decides it"
    return replace(entry, verdict=Verdict.OVERRULED, why=why)


def finished(
    entry: KeyEntry, facts: Mapping[str, Any], shape: ModelShape | None, document: Mapping[str, Any]
) -> KeyEntry:
    """The entry with the value that its key has in the configuration, which ``facts`` made."""
    if entry.verdict in (Verdict.UNKNOWN, Verdict.OVERRULED):
        return entry
    if entry.ours == "deepspeed" and "deepspeed" not in facts:
        entry = _of_a_name(entry, is_known="zero.stage" in facts)
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
    # A decoder reads a prompt with its answer.
    "data.synthetic.target_length": "data.synthetic.sequence_length",
    "deepspeed": "axes.offload",
}
"""Key of ours -> the one that decides the same where the data set is here, or a file is not."""


def _of_a_name(entry: KeyEntry, *, is_known: bool) -> KeyEntry:
    """The entry of a DeepSpeed configuration that is not here."""
    if not is_known:
        return replace(entry, verdict=Verdict.UNKNOWN, why=NOT_HERE)
    is_file = str(entry.value).endswith(".json")
    why = f"by its name; {NOT_HERE}"
    return replace(entry, verdict=Verdict.NEAREST, why=why) if is_file else entry


def _of_the_model(entry: KeyEntry, shape: ModelShape) -> KeyEntry:
    why = shape.source
    if found := QUANTIZED.search(str(entry.value).lower()):
        why += f"; {found[0]} weights become a 4-bit base of bitsandbytes under an adapter"
    is_exact = shape.is_exact and why == shape.source
    verdict = Verdict.TAKEN if is_exact else Verdict.NEAREST
    return replace(entry, verdict=verdict, taken=shape.checkpoint or shape.architecture, why=why)


def _without_effect(entry: KeyEntry) -> KeyEntry:
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


def _flat(dialect: Dialect, content: Mapping[str, Any], at: str = "") -> Iterator[tuple[str, Any]]:
    """Keys with their values; a mapping is entered if the table has rows for what is inside."""
    for name, value in content.items():
        key = f"{at}{name}"
        is_entered = any(row.startswith(f"{key}.") for row in dialect.rows)
        if isinstance(value, Mapping) and value and is_entered:
            yield from _flat(dialect, value, f"{key}.")
        else:
            yield key, value


_OTHER_TRAINING = re.compile("lora|peft|adapter|quant|[48]_?bit")
_OTHER = (
    "and by its name it is of an adapter or of few bits: without it, memory and speed would be "
    "those of another training"
)
