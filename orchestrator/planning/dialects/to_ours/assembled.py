"""Facts and the shape of a model -> our configuration, as its YAML holds it."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jobs.tasks import SPEECH
from jobs.techniques.hooks import service
from orchestrator.planning.dialects.to_ours import chosen_axes
from orchestrator.planning.dialects.to_ours import facts as vocabulary
from orchestrator.planning.dialects.to_ours.model_shapes import ModelShape

_IMAGES = "image-text-to-text"
_WITH_TARGETS = "seq2seq-lm"
IMAGE_SIZE = 448
"""Side of random images for models that take any: a multiple of the patches of the Qwen families,
which are 28 and 32 pixels after merging."""
SAMPLES = 64
"""Random samples of an epoch: more than any measurement of a large model takes."""
_ROWS = (".json", ".jsonl", ".parquet", ".csv", ".arrow")


def configuration(facts: Mapping[str, Any], shape: ModelShape) -> dict[str, Any]:
    """The configuration. A task with images is one of texts if the shape takes none."""
    task = facts.get("task") or shape.task
    if task == _IMAGES:
        task = shape.task
    layers = shape.config.get("num_hidden_layers")
    document: dict[str, Any] = {
        "model": {"task": task, **_model(shape)},
        "data": _data(facts, task, shape),
        "axes": chosen_axes.axes_of({**facts, "task": task, "layers": layers}),
    }
    return document | _beside(facts)


def _model(shape: ModelShape) -> dict[str, Any]:
    if shape.checkpoint is not None:
        return {"name_or_path": shape.checkpoint}
    return {"architecture": shape.architecture, "config": dict(shape.config)}


def _beside(facts: Mapping[str, Any]) -> dict[str, Any]:
    sections = {
        "training_arguments": vocabulary.below(facts, "arguments"),
        "deepspeed": facts.get("deepspeed"),
        "measure": {"seed": facts["seed"]} if isinstance(facts.get("seed"), int) else {},
    }
    return {name: section for name, section in sections.items() if section}


def local_file(given: Any, folder: Path) -> str | None:
    """The first of the data sets that is a file here."""
    for item in given if isinstance(given, list) else [given]:
        name = item.get("path") if isinstance(item, Mapping) else item
        path = folder / str(name).partition("#")[0]
        if path.suffix in _ROWS and path.is_file():
            return str(path.resolve())
    return None


def _data(facts: Mapping[str, Any], task: str, shape: ModelShape) -> dict[str, Any]:
    length, target = facts.get("length"), facts.get("target_length")
    if target and task != _WITH_TARGETS:
        length = (length or 0) + target
    if facts.get("file"):
        rows = {"path": facts["file"], "tokenizer": facts.get("model"), "max_length": length}
        rows["columns"] = vocabulary.below(facts, "columns") or None
        return {"file": {key: value for key, value in rows.items() if value is not None}}
    synthetic: dict[str, Any] = {"sequence_length": length} if isinstance(length, int) else {}
    if target and task == _WITH_TARGETS:
        synthetic["target_length"] = target
    if "seconds" in facts and task in SPEECH:
        synthetic["seconds"] = facts["seconds"]
    if task == _IMAGES and not _has_one_size(shape):
        pixels = facts.get("image_pixels", IMAGE_SIZE**2)
        size = facts.get("image_size") or math.isqrt(int(pixels))
        synthetic["image_size"] = size
    return {"synthetic": {**synthetic, "samples": SAMPLES}}


def _has_one_size(shape: ModelShape) -> bool:
    """Whether the images of a model have its own size, whatever their size in a file."""

    def read(key: str) -> Any:
        value: Any = shape.config
        for name in key.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        return value

    try:
        service("layout_of")(shape.architecture, read, None)
    except LookupError:
        return True  # a size that only the built configuration knows
    except ValueError:
        return False
    return True
