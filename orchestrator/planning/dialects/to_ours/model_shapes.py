"""The shape of a public model: from the user's disk, else from the table of ``models.yaml``."""

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from orchestrator.planning.prechecks.checkpoints import checkpoint_config

_FILE = Path(__file__).with_name("models.yaml")
_SIZE = re.compile(r"(?<![a-z0-9.])(\d+x)?(\d+(?:[._]\d+)?)(b|m)(\d?)(?![a-z0-9])")
"""The parameters in an id: 8b, 1.5b, 1b5, 135m, 8x7b. Active parameters (a3b) are no such size."""

_MIXTURE = r"\d+x\d|-a\d|moe|b-\d+e(?![a-z0-9])"
"""Words of an id whose model is a mixture of experts."""
_IMAGES = "+images"
"""Ends the key of a row whose model is known with images and without."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelShape:
    """The architecture of a model, without its weights."""

    architecture: str
    config: Mapping[str, Any]
    task: str
    source: str
    """Where it comes from, in a few words."""
    is_exact: bool = True
    checkpoint: str | None = None
    """The folder with its weights, if they are on this machine."""


def shape_of(model_id: str, *, with_images: bool = False, hint: str = "") -> ModelShape | None:
    """The shape of a model by its id on the Hub; None if nothing near it is known. ``with_images``
    says that the model is trained on images with texts, and ``hint`` what else names its family
    and size."""
    on_this_machine = checkpoint_config(model_id)
    if on_this_machine and "model_type" in on_this_machine:
        return shape_from(on_this_machine, "its config.json here")
    name = _plain(model_id)
    # The folders of a checkpoint without a size in its name may say it.
    folders = model_id.lower().split("/")[-2::-1] if _size(name) is None else ()
    whole = " ".join([name, hint, *(own for own in folders if _family(own) or _size(own))])
    with_images = with_images or _says("sees", whole)
    rows = {key: row for key, row in _rows().items() if _takes_images(row) == with_images}
    if named := [key for key, row in rows.items() if _is_named(key, row, name)]:
        key = max(named, key=len)
        # What stands before it may be another vocabulary, as in multilingual models.
        is_exact = name.startswith(key.removesuffix(_IMAGES))
        return _shape(key, rows[key], f"the shape of {key}", is_exact=is_exact)
    near = _nearest(whole, rows, is_any=not with_images)
    if near is None:
        return None
    why = f"the nearest known shape, {near}, of {rows[near][1]:.3g} B parameters"
    return _shape(near, rows[near], why, is_exact=False)


def shape_from(config: Mapping[str, Any], source: str) -> ModelShape:
    """The shape that a model's config.json gives. Raises KeyError if it names no architecture."""
    architecture = str(config["model_type"])
    return ModelShape(
        architecture=architecture,
        config={key: value for key, value in config.items() if key != "model_type"},
        task=_tasks().get(architecture, "causal-lm"),
        source=source,
    )


def _nearest(name: str, rows: Mapping[str, list[Any]], *, is_any: bool) -> str | None:
    """The row of the name's family that is nearest to its size. With ``is_any``, a dense decoder of
    no known family is like a Llama."""
    size, is_mixture = _size(name), re.search(_MIXTURE, name) is not None
    family = _family(name) or ("any" if is_any and not is_mixture else None)
    if size is None or family is None or _says("hears", name):
        return None
    own = [key for start in _starts(family) for key in rows if key.startswith(start)]
    kind = [key for key in own if _is_mixture(rows[key]) == is_mixture]
    far = {key: max(rows[key][1] / size, size / rows[key][1]) for key in kind or own}
    # Half or twice the parameters are near: the next size of most families.
    near = [key for key in far if far[key] <= 2.0 and (kind or not is_mixture)]
    # Of two that are as near, the first of the family.
    return min(near, key=lambda key: round(far[key], 1), default=None)


def _says(kind: str, name: str) -> bool:
    """Whether a name has one of the table's words of a kind of model."""
    return re.search(rf"(?<![a-z])({'|'.join(_table()[kind])})(?![a-z])", name) is not None


def _takes_images(row: list[Any]) -> bool:
    return _tasks().get(row[0]) == "image-text-to-text"


def _is_named(key: str, row: list[Any], name: str) -> bool:
    """Whether a name has a row's words, is of its family, and says no other size."""
    word = re.escape(key.removesuffix(_IMAGES))
    if re.search(rf"(?<![a-z0-9]){word}(?![a-z0-9.])", name) is None:
        return False
    size = _size(name) if _size(key) is None else None
    is_near = size is None or row[1] / 2 <= size <= row[1] * 2
    return is_near and _family(key) == _family(name)


def _is_mixture(row: list[Any]) -> bool:
    return row[0] in _table()["mixtures"] or re.search(r"_experts': [1-9]", str(row)) is not None


def _family(name: str) -> str | None:
    """The first word of a name that is a family's. A distilled model is of its student's."""
    pattern = _any_family()
    found = pattern.search(name, name.rfind("distill") + 1) or pattern.search(name)
    return found and found[0]


@functools.cache
def _any_family() -> re.Pattern[str]:
    table = _table()
    firsts = {found[0] for key in _rows() if (found := re.match("[a-z]{3,}|[a-z]+[0-9]?", key))}
    words = {*table["families"], *firsts.difference(table["general"])}
    longest_first = map(re.escape, sorted(words, key=len, reverse=True))
    any_word = "|".join([*table["others"], *longest_first])
    return re.compile(rf"(?<![a-z])({any_word})(?![a-z])")


def _starts(family: str) -> list[str]:
    """The beginnings of the names of a family's rows."""
    starts: list[str] = _table()["families"].get(family, [family])
    return starts


def _size(name: str) -> float | None:
    """Parameters in billions, of which a mixture's experts all count."""
    found = _SIZE.search(name)
    if found is None:
        sizes: Mapping[str, float] = _table()["sizes"]
        return next((size for start, size in sizes.items() if name.startswith(start)), None)
    number = float(".".join(filter(None, [found[2].replace("_", "."), found[4]])))
    experts = int(found[1][:-1]) if found[1] else 1
    return experts * number / (1000 if found[3] == "m" else 1)


def _plain(model_id: str) -> str:
    """The id without its owner, in small letters, in the way that ``models.yaml`` writes names."""
    in_cache = re.search(r"models--([^/]+)/snapshots(/|$)", model_id)
    name = in_cache[1].replace("--", "/") if in_cache else model_id
    name = name.rstrip("/").rsplit("/", 1)[-1].lower()
    return re.sub(rf"^({'|'.join(_table()['makers'])})-", "", name)


def _shape(key: str, row: list[Any], source: str, *, is_exact: bool) -> ModelShape:
    architecture, _, *values = row
    others = values.pop() if values and isinstance(values[-1], dict) else {}
    columns = dict(zip(_table()["columns"], values, strict=False))
    config = {name: value for name, value in columns.items() if value is not None} | others
    return replace(shape_from({"model_type": architecture, **config}, source), is_exact=is_exact)


@functools.cache
def _tasks() -> Mapping[str, str]:
    """Architecture -> its task, of those that are no causal language model."""
    tasks: Mapping[str, list[str]] = _table()["tasks"]
    return {architecture: task for task, all_of in tasks.items() for architecture in all_of}


def _rows() -> Mapping[str, list[Any]]:
    rows: dict[str, list[Any]] = _table()["models"]
    return rows | {name: rows[key] for name, key in _table()["also"].items()}


@functools.cache
def _table() -> Mapping[str, Any]:
    return yaml.safe_load(_FILE.read_text(encoding="utf-8"))
