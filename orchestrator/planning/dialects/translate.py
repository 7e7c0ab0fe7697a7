"""Reads files of other trainers, and makes one configuration of ours from what they say."""

import fnmatch
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from jobs.techniques import AXES
from orchestrator.planning.arguments import argument_names, ignored_reason
from orchestrator.planning.dialects import axes, models, zero
from orchestrator.planning.dialects import facts as vocabulary
from orchestrator.planning.dialects.rule import OFF, Reading, Rule, Verdict, as_is, aside, spelt
from orchestrator.planning.dialects.training_arguments import LOGS
from orchestrator.storage.redaction import secret_paths

IMAGE_SIZE = 448
"""Side of random images for models that take any: a multiple of the patches of the Qwen families,
which are 28 and 32 pixels after merging."""
_QUANTIZED = re.compile(r"gptq|awq|aqlm|int4|bnb-?4bit|nf4|nvfp4|4bit")
"""Words of a model's name that say in which format of few bits its weights are."""
_ROWS = (".json", ".jsonl", ".parquet", ".csv", ".arrow")
SAMPLES = 64
"""Random samples of an epoch: more than any measurement of a large model takes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Dialect:
    """How one trainer writes a training down."""

    name: str
    rows: Mapping[str, Rule] = field(default_factory=dict)
    """Key -> what it says; ``a.b`` is b inside the mapping a, ``*`` is any rest."""
    marks: tuple[str, ...] = ()
    """Keys that only files of this dialect have."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Facts of a file that does not state them."""
    takes_arguments: bool = False
    """Whether any field of TrainingArguments is a key, too."""
    command: str = ""
    """A regular expression of the words before a command's options; empty: it is a file."""
    plugins: Mapping[str, str] = field(default_factory=dict)
    """Beginning of a key -> the plugin without which the key has no effect."""
    whole: str = ""
    """The fact that the whole file is, instead of single keys."""


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Translation:
    """What became of the user's files."""

    dialects: tuple[str, ...]
    entries: tuple[Entry, ...]
    document: Mapping[str, Any]
    """Our configuration, as its YAML holds it."""
    facts: Mapping[str, Any]
    missing: str = ""
    """What must be given before a configuration can be written; empty: nothing."""

    @property
    def obstacles(self) -> tuple[Entry, ...]:
        """The keys that ask for what no trial can do."""
        return tuple(one for one in self.entries if one.verdict is Verdict.IMPOSSIBLE)


def entries_of(dialect: Dialect, content: Mapping[str, Any]) -> Iterator[tuple[Entry, Reading]]:
    """Every key of a file with what it says, in the file's order."""
    if dialect.whole:
        reading = Reading(verdict=Verdict.TAKEN, facts={dialect.whole: content})
        ours = vocabulary.ours(dialect.whole)
        yield Entry(key="all of it", value="...", verdict=Verdict.TAKEN, ours=ours), reading
        return
    for key, value in _flat(dialect, content):
        if any(secret_paths({key: value})):
            value = "***"  # the table is written to a file
        reading = _rule(dialect, key).read(value)
        yield (
            Entry(
                key=key,
                value=value,
                verdict=reading.verdict,
                ours=", ".join(dict.fromkeys(map(vocabulary.ours, reading.facts))),
                why=reading.why,
            ),
            reading,
        )


def translate(
    files: Sequence[tuple[Dialect, Mapping[str, Any]]],
    *,
    model: str | None = None,
    model_config: Mapping[str, Any] | None = None,
    folder: Path = Path(),
) -> Translation:
    """Our configuration from the content of some files, and what became of each key.

    ``model`` and ``model_config`` go before the files' own model. ``folder`` is that of the files,
    in which a path of a local data set is looked up.
    """
    stated: dict[str, Any] = {}
    assumed: dict[str, Any] = {}
    entries: list[Entry] = []
    for dialect, content in files:
        assumed |= dialect.defaults
        for entry, reading in entries_of(dialect, content):
            entries.append(entry)
            stated |= reading.facts
    facts = {**assumed, **stated}
    facts |= {"model": model} if model else {}
    if (given := facts.pop("deepspeed", None)) is not None:
        facts |= zero.facts_of(given, folder)
    four_bits = _QUANTIZED.search(str(facts.get("model", "")).lower())
    if four_bits and "bits" not in facts:
        facts["bits"] = 4
    shape = models.shape_from(model_config, "--model-config") if model_config else _shape(facts)
    missing = "" if shape else _what_is_missing(facts)
    facts |= {"file": _local_file(facts.get("data"), folder)}
    document = _document(facts, shape) if shape else {}
    entries += _by_default({name: assumed[name] for name in assumed if name not in stated})
    entries = [_finished(entry, facts, shape, document) for entry in entries]
    entries = [one for one in entries if one.taken is not None or one.verdict != Verdict.DEFAULT]
    return Translation(
        dialects=tuple(dialect.name for dialect, _ in files),
        entries=tuple(entries),
        document=document,
        facts=facts,
        missing=missing,
    )


def _by_default(assumed: Mapping[str, Any]) -> Iterator[Entry]:
    """What a trainer does where no key says anything."""
    for fact, value in assumed.items():
        ours = vocabulary.ours(fact)
        yield Entry(key=fact, value=value, verdict=Verdict.DEFAULT, ours=ours)


def _shape(facts: Mapping[str, Any]) -> models.Shape | None:
    if config := facts.get("config"):
        return models.shape_from(config, "the config.json")
    name = facts.get("model")
    if not isinstance(name, str):
        return None
    # Preference training is for texts only here.
    is_of_texts = facts.get("loop") == "trl_dpo"
    with_images = None if is_of_texts else facts.get("task") == "image-text-to-text"
    return models.shape_of(name, with_images=with_images)


def _what_is_missing(facts: Mapping[str, Any]) -> str:
    if facts.get("model") is None:
        return "no file names a model: give --model ID, or --model-config config.json"
    return (
        f"the shape of {facts['model']} is not known here: give its config.json with --model-config"
    )


def _document(facts: Mapping[str, Any], shape: models.Shape) -> dict[str, Any]:
    task = facts.get("task") or shape.task
    if task == "image-text-to-text" and shape.task != task:
        task = shape.task  # of images, only the texts are left
    layers = shape.config.get("num_hidden_layers")
    document: dict[str, Any] = {
        "model": {"task": task, "architecture": shape.architecture, "config": dict(shape.config)},
        "data": _data(facts, task, shape),
        "axes": axes.axes_of({**facts, "task": task, "layers": layers}),
    }
    if arguments := vocabulary.below(facts, "arguments"):
        document["training_arguments"] = arguments
    if facts.get("deepspeed") is not None:
        document["deepspeed"] = facts["deepspeed"]
        document["axes"].pop("offload", None)
    if isinstance(facts.get("seed"), int):
        document["measure"] = {"seed": facts["seed"]}
    return document


def _local_file(given: Any, folder: Path) -> str | None:
    """The first of the data sets that is a file here."""
    for item in given if isinstance(given, list) else [given]:
        name = item.get("path") if isinstance(item, Mapping) else item
        path = folder / str(name).partition("#")[0]
        if path.suffix in _ROWS and path.is_file():
            return str(path.resolve())
    return None


def _data(facts: Mapping[str, Any], task: str, shape: models.Shape) -> dict[str, Any]:
    length = facts.get("length")
    if facts.get("file"):
        rows = {"path": facts["file"], "tokenizer": facts.get("model"), "max_length": length}
        return {"file": {key: value for key, value in rows.items() if value is not None}}
    synthetic: dict[str, Any] = {"sequence_length": length} if isinstance(length, int) else {}
    if task == "image-text-to-text" and "image_size" not in shape.config.get("vision_config", ()):
        pixels = facts.get("image_pixels", IMAGE_SIZE**2)
        size = facts.get("image_size") or math.isqrt(int(pixels))
        synthetic["image_size"] = size
    return {"synthetic": {**synthetic, "samples": SAMPLES}}


def _finished(
    entry: Entry, facts: Mapping[str, Any], shape: models.Shape | None, document: Mapping[str, Any]
) -> Entry:
    """The entry with the value that its key has in the written configuration."""
    if entry.ours == "model" and shape is not None:
        why = shape.source
        if facts.get("task") == "image-text-to-text" and shape.task != "image-text-to-text":
            why += ", a model of texts: images and their tower are left out"
        if quantized := _QUANTIZED.search(str(entry.value).lower()):
            why += f"; {quantized[0]} weights become a 4-bit base of bitsandbytes under an adapter"
        is_exact = shape.is_exact and why == shape.source
        verdict = Verdict.TAKEN if is_exact else Verdict.NEAREST
        return replace(entry, verdict=verdict, taken=shape.architecture, why=why)
    if not entry.ours or ", " in entry.ours or not document:
        return entry
    found: Any = document
    for part in entry.ours.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    if entry.ours == "data" and facts.get("file"):
        return replace(entry, verdict=Verdict.TAKEN, taken=found, why="the file is here")
    if found is None and entry.verdict is Verdict.TAKEN:
        axis = AXES.get(entry.ours.removeprefix("axes."))
        if axis is not None and spelt(entry.value) in ("full", *OFF):
            return replace(entry, taken=axis.default)
        why = "has no effect beside the other keys"
        return replace(entry, verdict=Verdict.ASIDE, ours="", why=why)
    return replace(entry, taken=found)


def _flat(dialect: Dialect, content: Mapping[str, Any], at: str = "") -> Iterator[tuple[str, Any]]:
    """Keys with their values; a mapping is entered if the table has rows for what is inside."""
    for name, value in content.items():
        key = f"{at}{name}"
        is_entered = any(row.startswith(f"{key}.") for row in dialect.rows)
        if isinstance(value, Mapping) and value and is_entered:
            yield from _flat(dialect, value, f"{key}.")
        else:
            yield key, value


def _rule(dialect: Dialect, key: str) -> Rule:
    if key in dialect.rows:
        return dialect.rows[key]
    for pattern, rule in dialect.rows.items():
        if "*" in pattern and fnmatch.fnmatchcase(key, pattern):
            return rule
    if dialect.takes_arguments and key in (argument_names() or ()):
        return aside(LOGS) if ignored_reason(key, None) else as_is(f"arguments.{key}")
    return _UNKNOWN


class _Unknown(Rule):
    """A key without a row."""

    def read(self, value: Any) -> Reading:
        if value is None:
            return Reading(verdict=Verdict.ASIDE, why="has no value")
        return Reading(verdict=Verdict.UNKNOWN, why="no row of this dialect's table is about it")


_UNKNOWN = _Unknown()
