"""The shape of a public model: from the user's disk, else from the table of ``models.yaml``."""

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from orchestrator.planning.prechecks.checkpoints import checkpoint_config

_FILE = Path(__file__).with_name("models.yaml")
_SIZE = re.compile(r"(?<![a-z0-9.])(\d+x)?(\d+(?:[._]\d+)?)(b|m)(?![a-z0-9])")
"""The parameters in an id: 8b, 1.5b, 135m, 8x7b. Active parameters (a3b) are no such size."""

_SEES = r"(?<![a-z])(vl|vision|llava|pixtral)(?![a-z])-?"
"""Words of an id whose model sees images."""
_IMAGES = "+images"
"""Ends the key of a row whose model is known with images and without."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """The architecture of a model, without its weights."""

    architecture: str
    config: Mapping[str, Any]
    task: str
    source: str
    """Where it comes from, in a few words."""
    is_exact: bool = True
    checkpoint: str | None = None
    """The folder with its weights, if they are on this machine."""


def shape_of(model_id: str, *, with_images: bool | None = False) -> Shape | None:
    """The shape of a model by its id on the Hub; None if nothing near it is known. ``with_images``
    says that the model is trained on images with texts; None: on texts, even if it is one for
    images."""
    on_this_machine = checkpoint_config(model_id)
    if on_this_machine and "model_type" in on_this_machine:
        return shape_from(on_this_machine, "its config.json here")
    name = _plain(model_id)
    if with_images is None:
        name = re.sub(_SEES, "", name)
    with_images = bool(with_images) or re.search(_SEES, name) is not None
    tasks = _table()["tasks"]
    rows = {
        key: row
        for key, row in _rows().items()
        if (tasks.get(row[0]) == "image-text-to-text") == with_images
    }
    words = {key: re.escape(key.removesuffix(_IMAGES)) for key in rows}
    named = [key for key in rows if re.search(rf"(?<![a-z0-9]){words[key]}(?![a-z0-9.])", name)]
    if named:
        key = max(named, key=len)
        return _shape(key, rows[key], f"the shape of {key}", is_exact=True)
    if near := _nearest(name, rows):
        return _shape(near, rows[near], f"the nearest known shape, {near}", is_exact=False)
    # A language model by that name, or of that size, without its vision tower.
    return shape_of(model_id, with_images=None) if with_images else None


def sees_images(model_id: str) -> bool:
    """Whether the model takes images, by its name."""
    return re.search(_SEES, _plain(model_id)) is not None


def shape_from(config: Mapping[str, Any], source: str) -> Shape:
    """The shape that a model's config.json gives. Raises KeyError if it names no architecture."""
    architecture = str(config["model_type"])
    return Shape(
        architecture=architecture,
        config={key: value for key, value in config.items() if key != "model_type"},
        task=_table()["tasks"].get(architecture, "causal-lm"),
        source=source,
    )


def _nearest(name: str, rows: Mapping[str, list[Any]]) -> str | None:
    size = _size(name)
    if size is None:
        return None
    near = [
        key
        for key in rows
        # Half or twice the parameters are near: the next size of most families.
        if _is_mixture(key) == _is_mixture(name) and _distance(rows[key][1], size) <= 2.0
    ]
    family = list(_of_family(name, near))
    if not any(name.startswith(word) for word in _table()["unlike"]):
        family = family or near
    return min(family, key=lambda key: _distance(rows[key][1], size), default=None)


def _is_mixture(name: str) -> bool:
    return bool(re.search(r"\d+x\d|-a\d|moe|\d+e(?![a-z0-9])", name))


def _distance(parameters: float, size: float) -> float:
    return max(parameters / size, size / parameters)


def _of_family(name: str, rows: Iterable[str]) -> Iterator[str]:
    families = _table()["families"]
    first = re.match(r"[a-z]*", name)[0]  # type: ignore[index]
    starts = families.get(first, [first] if first else [])
    for key in rows:
        if any(key.startswith(start) for start in starts):
            yield key


def _size(name: str) -> float | None:
    """Parameters in billions, of which a mixture's experts all count."""
    found = _SIZE.search(name)
    if found is None:
        sizes: Mapping[str, float] = _table()["sizes"]
        return next((size for start, size in sizes.items() if name.startswith(start)), None)
    number = float(found[2].replace("_", "."))
    experts = int(found[1][:-1]) if found[1] else 1
    return experts * number / (1000 if found[3] == "m" else 1)


def _plain(model_id: str) -> str:
    """The id without its owner, in small letters, in the way that ``models.yaml`` writes names."""
    name = model_id.rstrip("/").rsplit("/", 1)[-1].lower()
    return name.replace("meta-llama", "llama")


def _shape(key: str, row: list[Any], source: str, *, is_exact: bool) -> Shape:
    architecture, _, *values = row
    others = values.pop() if values and isinstance(values[-1], dict) else {}
    columns = dict(zip(_table()["columns"], values, strict=False))
    config = {name: value for name, value in columns.items() if value is not None} | others
    return replace(shape_from({"model_type": architecture, **config}, source), is_exact=is_exact)


def _rows() -> Mapping[str, list[Any]]:
    rows: dict[str, list[Any]] = _table()["models"]
    return rows | {name: rows[key] for name, key in _table()["also"].items()}


@functools.cache
def _table() -> Mapping[str, Any]:
    return yaml.safe_load(_FILE.read_text(encoding="utf-8"))
