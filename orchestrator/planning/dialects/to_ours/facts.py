"""The facts about a training that all dialects share, and what they decide in a configuration."""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

Facts = Mapping[str, Any]

_FACTS = {
    "model": "model config",
    "model.family": "family",
    "model.task": "task",
    "axes.base": "quantized bits bnb",
    "data.synthetic.sequence_length": "length",
    "data.synthetic.target_length": "target_length",
    "data.synthetic.seconds": "seconds",
    "data": "data",
    "data.file": "file",
    "data.file.columns": "columns",
    "data.synthetic.image_size": "image_size image_pixels",
    "axes.micro_batch": "rows_of_a_sample micro_batch",
    "axes.batching": "packing packed",
    "axes.accumulation": "accumulation",
    "axes.precision": "bf16 fp16 tf32 fp8 weights",
    "axes.optimizer": "optimizer optimizer_layerwise",
    "axes.activations": "checkpointing reentrant offloading recomputes_beside_adapter",
    "axes.attention": "attention",
    "axes.experts": "experts",
    "axes.kernels": "liger kernels",
    "axes.loss": "loss eaft",
    "axes.adapter": "adapter lora oft",
    "axes.trainable": "trainable",
    "axes.vision": "vision",
    "axes.qat": "qat",
    "axes.loop": "loop preference pairs",
    "axes.compile": "compile",
    "axes.dataloader": "workers pin_memory",
    "axes.offload": "zero fsdp_offload",
    "deepspeed": "deepspeed",
    "measure.seed": "seed",
    "training_arguments": "arguments",
}
OURS = {fact: key for key, facts in _FACTS.items() for fact in facts.split()}
"""First word of a fact -> the key of our configuration that it decides. A fact with a dot is a
parameter: ``lora.r`` is the rank of ``axes.adapter``."""


_BATCH = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")


def ours(fact: str) -> str:
    """The key of our configuration that a fact decides."""
    first, _, rest = fact.partition(".")
    return f"{OURS[first]}.{rest}" if first == "arguments" else OURS[first]


def below(facts: Facts, prefix: str) -> dict[str, Any]:
    """The parameters under a fact: ``lora`` -> ``{"r": 16}``."""
    start = f"{prefix}."
    return {name.removeprefix(start): facts[name] for name in facts if name.startswith(start)}


def of_deepspeed(given: Any, folder: Path) -> dict[str, Any]:
    """The facts that a DeepSpeed configuration states: a mapping, the path of a file that is here,
    or a name such as ``zero3_offload.json``, whose content is then a value of the axis offload."""
    if isinstance(given, Mapping):
        return _of_content(given)
    with suppress(OSError, ValueError):
        if path := file_beside(str(given), folder):
            return _of_content(json.loads(path.read_text(encoding="utf-8")))
    return _named(str(given))


def file_beside(name: str, folder: Path) -> Path | None:
    """The file of that name in the folder of the user's file, or in the folder where this runs. A
    path of several parts may begin in a folder above, such as that of the whole repository. A path
    that leads out of these folders is not read."""
    folder = folder.resolve()
    is_below = len(Path(name).parts) > 1 and not Path(name).is_absolute()
    # A path in the root of all folders is as good as absolute.
    above = folder.parents[:-1] if is_below else ()
    for root in (folder, *above, Path.cwd()):
        path = (root / name).resolve()
        if path.is_relative_to(root) and path.is_file():
            return path
    return None


def _of_content(content: Mapping[str, Any]) -> dict[str, Any]:
    numbers = {"micro_batch": content.get(_BATCH[1]), "accumulation": content.get(_BATCH[2])}
    facts = {name: number for name, number in numbers.items() if isinstance(number, int)}
    for name in ("bf16", "fp16"):
        section = content.get(name)
        if isinstance(section, Mapping) and section.get("enabled") is True:
            facts[name] = True
    return {**facts, "deepspeed": usable(content)}


def has_own_optimizer(content: Mapping[str, Any]) -> bool:
    """Whether DeepSpeed trains with an optimizer of its own: one that its configuration names, or
    the one that computes on the CPU, by which accelerate replaces any other if it is offloaded."""
    offload = (content.get("zero_optimization") or {}).get("offload_optimizer") or {}
    return "optimizer" in content or offload.get("device", "none") != "none"


def usable(content: Mapping[str, Any]) -> dict[str, Any]:
    """A DeepSpeed configuration in which the trial decides the batch and the precision."""
    kept = {key: value for key, value in content.items() if key not in _BATCH}
    for section in ("bf16", "fp16"):
        if isinstance(kept.get(section), Mapping):
            kept[section] = {**kept[section], "enabled": "auto"}
    return {**kept, **dict.fromkeys(_BATCH, "auto")}


def _named(name: str) -> dict[str, Any]:
    found = re.search(r"(?:zero|z|stage)_?([0-3])(.*)", Path(name).stem.lower())
    if found is None:
        return {}
    stage, rest = found[1], found[2]
    facts: dict[str, Any] = {"zero.stage": int(stage)}
    if "offload" in rest and not re.search(r"(?<![a-z])(no|non|without)[_-]?offload", rest):
        facts["zero.parameters"] = "cpu"
        if "param" not in rest:
            facts["zero.optimizer"] = "cpu"
    return facts
