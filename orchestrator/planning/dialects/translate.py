"""From files of other trainers to one configuration of ours: reads them, and writes it."""

import contextlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from jobs.spec import SyntheticData
from jobs.tasks import SPEECH
from jobs.trial.sound_shapes import DEFAULT_SECONDS
from orchestrator.planning.config import ConfigError, load_config
from orchestrator.planning.dialects.entries import (
    QUANTIZED,
    KeyEntry,
    entries_of,
    finished,
    or_overruled,
    value_at,
)
from orchestrator.planning.dialects.registry import KEYS, Source, UnreadableFileError, read_file
from orchestrator.planning.dialects.to_ours import facts as vocabulary
from orchestrator.planning.dialects.to_ours import model_shapes
from orchestrator.planning.dialects.to_ours.assembled import configuration, local_file
from orchestrator.planning.dialects.to_ours.chosen_axes import has_adapter
from orchestrator.planning.dialects.to_ours.model_shapes import ModelShape
from orchestrator.planning.dialects.trainers.tables import NOT_HERE, Dialect, Verdict
from orchestrator.planning.plan import plan
from orchestrator.planning.prechecks import checkpoints
from orchestrator.planning.prechecks.images import image_problems
from orchestrator.planning.prechecks.model_configuration import ModelConfiguration
from orchestrator.storage.layout import written_beside
from orchestrator.storage.user_files import refuse_used_file


@dataclass(frozen=True, kw_only=True, slots=True)
class Translation:
    """What became of the user's files."""

    dialects: tuple[str, ...]
    entries: tuple[KeyEntry, ...]
    document: Mapping[str, Any]
    """Our configuration, as its YAML holds it."""
    facts: Mapping[str, Any]
    missing: str = ""
    """What must be given before a configuration can be written; empty: nothing."""

    @property
    def obstacles(self) -> tuple[KeyEntry, ...]:
        """The keys that ask for what no trial can do."""
        return tuple(one for one in self.entries if one.verdict is Verdict.IMPOSSIBLE)


def translated(
    files: Sequence[Path], *, model: str | None = None, model_config: Path | None = None
) -> Translation:
    """What our configuration makes of some files, which together describe one training. Raises
    UnreadableFileError for a file in no known dialect."""
    config = None
    if model_config is not None:
        try:
            config = json.loads(model_config.read_text(encoding="utf-8"))
            config["model_type"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UnreadableFileError(f"{model_config}: no config.json ({error})") from None
    # Options of a command count before the keys of a file.
    ordered = sorted(files, key=lambda path: path.suffix not in KEYS)
    return translate(
        [source for path in ordered for source in _sources(path, files)],
        model=model,
        model_config=config,
        folder=files[0].parent,
    )


def _sources(path: Path, given: Sequence[Path]) -> Iterator[Source]:
    """What a file says, after the files beside it that a command names."""
    for dialect, content in read_file(path):
        own = dict(content)
        for key in (key for key in content if dialect.rule(key).is_file):
            name = str(own[key])
            if Path(name).name in (one.name for one in given):
                own[key] = [name]
            elif beside := vocabulary.file_beside(name, path.parent):
                with contextlib.suppress(UnreadableFileError):
                    yield from read_file(beside)
                    own[key] = [name]
        yield dialect, own


def write(translation: Translation, table: str, target: Path, *, force: bool) -> None:
    """Write the configuration, with ``table`` as comments above it. Raises FileExistsError."""
    refuse_used_file(target, force=force)
    comments = "".join(f"# {line}".rstrip() + "\n" for line in table.splitlines())
    document = yaml.safe_dump(dict(translation.document), sort_keys=False, width=100)
    target.parent.mkdir(parents=True, exist_ok=True)
    with written_beside(target) as partial:
        partial.write_text(f"{comments}{document}", encoding="utf-8")


def translate(
    files: Sequence[tuple[Dialect, Mapping[str, Any]]],
    *,
    model: str | None = None,
    model_config: Mapping[str, Any] | None = None,
    folder: Path = Path(),
) -> Translation:
    """Our configuration from the content of some files, and what became of each key. ``model`` and
    ``model_config`` go before the files' own model. ``folder`` is that of the files, in which a
    path of a local data set is looked up."""
    entries, stated = _read(files)
    assumed = _assumed([one for one, _ in files], stated)
    facts = _completed({**assumed, **stated, **({"model": model} if model else {})}, folder)
    shape = _shape(facts, model_config)
    guessed = _guessed_lengths(facts, shape) if shape else {}
    facts |= guessed
    entries += [replace(_GUESSED, key=_ROWS[own], ours=vocabulary.ours(own)) for own in guessed]
    document: Mapping[str, Any] = {}
    if shape:
        document, entries = _configured(configuration(facts, shape), entries)
    entries += _unstated(assumed, stated, facts)
    done = [finished(entry, facts, shape, document) for entry in entries]
    return Translation(
        dialects=tuple(dict.fromkeys(own.name for own, _ in files if own.name)),
        entries=tuple(own for own in done if (own.taken, own.verdict) != (None, Verdict.DEFAULT)),
        document=document,
        facts=facts,
        missing="" if shape else _what_is_missing(facts, entries),
    )


def _configured(
    whole: Mapping[str, Any], entries: Sequence[KeyEntry]
) -> tuple[Mapping[str, Any], list[KeyEntry]]:
    """The configuration that a sweep would accept, and what it would refuse among the entries."""
    document, refused, problem = accepted(whole)
    impossible = [replace(_TOGETHER, why=problem)] if problem else []
    return document, [*_with_refused(entries, refused, whole), *impossible]


_TOGETHER = KeyEntry(key="all keys", value="together", verdict=Verdict.IMPOSSIBLE)


def _assumed(dialects: Sequence[Dialect], stated: Mapping[str, Any]) -> dict[str, Any]:
    """The facts that trainers take where their files state none, and those that others imply."""
    assumed = {fact: value for one in dialects for fact, value in one.defaults.items()}
    for one in dialects:
        for first, facts in one.implied.items():
            assumed |= facts if vocabulary.below(stated, first) else {}
    return assumed


def _guessed_lengths(facts: Mapping[str, Any], shape: ModelShape) -> dict[str, Any]:
    """How long rows of text and sounds are taken to be, where nothing says it."""
    if facts.get("file") or shape.task == "image-classification":
        return {}
    length = _TRANSCRIPT if shape.task in SPEECH else SyntheticData().sequence_length
    guessed: dict[str, Any] = {"length": length}
    if shape.task == "speech-ctc":
        guessed["seconds"] = DEFAULT_SECONDS
    return {fact: own for fact, own in guessed.items() if facts.get(fact) is None}


def _unstated(
    assumed: Mapping[str, Any], stated: Mapping[str, Any], facts: Mapping[str, Any]
) -> Iterator[KeyEntry]:
    """An adapter that a base of few bits lacks, and what no key states, but trainers assume."""
    if stated.get("bits") and not has_adapter(facts):
        why = "weights of few bits train only beside an adapter, and no key names one"
        yield replace(_TOGETHER, why=why)
    for fact, value in assumed.items():
        if fact not in stated:
            ours = vocabulary.ours(fact)
            yield KeyEntry(key=fact, value=value, verdict=Verdict.DEFAULT, ours=ours)


def _with_refused(
    entries: Sequence[KeyEntry], refused: Mapping[str, str], whole: Mapping[str, Any]
) -> list[KeyEntry]:
    """The entries, those of keys that our configuration refuses last, with the reasons."""
    own = {entry.ours: entry for entry in entries}
    last = []
    for key, why in refused.items():
        entry = own.get(key, KeyEntry(key=key, value=value_at(key, whole), verdict=Verdict.UNKNOWN))
        entries = [one for one in entries if one is not entry]
        last.append(replace(entry, verdict=Verdict.UNKNOWN, ours="", why=why))
    return [*entries, *last]


def _read(
    files: Sequence[tuple[Dialect, Mapping[str, Any]]],
) -> tuple[list[KeyEntry], dict[str, Any]]:
    """What the keys say, in the files' order, and the facts that they state."""
    entries: list[KeyEntry] = []
    deciding: dict[str, KeyEntry] = {}
    given = {dialect.whole for dialect, _ in files}
    for dialect, content in files:
        own = list(entries_of(dialect, content))
        entries += own
        places = {key: place for place, key in enumerate(dialect.order)}
        # Not in the file's order, which says nothing about which of two keys counts.
        for entry in sorted(own, key=lambda entry: places.get(entry.key, -1)):
            # The name of a file says less than the file.
            facts = entry.facts.keys() - ({} if dialect.whole else given)
            deciding |= dict.fromkeys(facts, entry)
    stated = {fact: entry.facts[fact] for fact, entry in deciding.items()}
    return [or_overruled(entry, deciding) for entry in entries], stated


def _completed(facts: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The facts with what follows from the files that they name, and from the model's name."""
    complete = {**facts, "file": local_file(facts.get("data"), folder)}
    if (given := complete.pop("deepspeed", None)) is not None:
        complete = {**vocabulary.of_deepspeed(given, folder), **complete}
        if vocabulary.has_own_optimizer(complete.get("deepspeed", {})):
            complete.pop("optimizer", None)
    model = str(facts.get("model", ""))
    if model and (folder / model / "config.json").is_file():
        complete["model"] = str((folder / model).resolve())
    quantized = complete.get("config", {}).get("quantization_config")
    if quantized or QUANTIZED.search(model.lower()):
        complete.setdefault("bits", 8 if quantized and quantized.get("load_in_8bit") else 4)
    return complete


_TRANSCRIPT = 100
"""Letters or tokens that are guessed for the words of some seconds."""
_ROWS = {"length": "length of the rows", "seconds": "length of the sounds"}
_GUESSED = KeyEntry(
    key="",
    value="in none of your files",
    verdict=Verdict.NEAREST,
    why="a guess: write the length of your own rows, or name them as data.file",
)


def _shape(facts: Mapping[str, Any], given: Mapping[str, Any] | None) -> ModelShape | None:
    if config := given or facts.get("config"):
        return model_shapes.shape_from(config, "--model-config" if given else "the config.json")
    name = facts.get("model")
    if not isinstance(name, str):
        return None
    hint = str(facts.get("family", "")).lower()
    with_images = facts.get("task") == "image-text-to-text"
    shape = model_shapes.shape_of(name, with_images=with_images, hint=hint)
    # Random weights in place of a folder's own would be another training.
    if shape is None or not Path(name).is_dir() or checkpoints.model_problem(name):
        return shape
    return replace(shape, checkpoint=name, source="the folder with its weights")


def _what_is_missing(facts: Mapping[str, Any], entries: Sequence[KeyEntry]) -> str:
    if (name := facts.get("model")) is not None:
        return f"the shape of {name} is not known here: give its config.json with --model-config"
    text = "no file names a model: give --model ID, or --model-config config.json"
    unread = (one for one in entries if one.why == NOT_HERE or one.ours == "model")
    return "; ".join([text, *(f"{one.key}: {one.value} ({one.why})" for one in unread)])


_OWN = ("model.config.", "training_arguments.", "deepspeed.")
"""Beginnings of keys that are the user's own, as their files have them."""


def accepted(document: Mapping[str, Any]) -> tuple[Mapping[str, Any], dict[str, str], str]:
    """The configuration without the user's own keys that a sweep would refuse, why it would, and
    why no trial of what is left could run; empty if one could."""
    try:
        config = load_config(document)
        planned = plan(config)
    except ConfigError as error:
        # A key that was right in its own file is no misspelt one of ours.
        why = {one.key: one.message.partition("; ")[0] for one in error.problems}
        refused = {key: why[key] for key in why if key.startswith(_OWN)}
        if refused:
            document, others, problem = accepted(_without(document, refused))
            return document, {**refused, **others}, problem
        return document, {}, "; ".join(f"{key}: {one}" for key, one in why.items())
    for _, message in image_problems(config, ModelConfiguration.of(config.model)):
        return document, {}, message
    return document, {}, "" if planned.trials else planned.ruled_out[0].reason


def _without(inside: Mapping[str, Any], keys: Collection[str], at: str = "") -> dict[str, Any]:
    return {
        name: _without(value, keys, f"{at}{name}.") if isinstance(value, Mapping) else value
        for name, value in inside.items()
        # A problem of a list's item is that of the list.
        if not any(re.fullmatch(rf"{re.escape(at + str(name))}(\[.*)?", key) for key in keys)
    }
