"""DeepSpeed's configuration, as a file of its own or as a name that a trainer knows."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_BATCH = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")


def facts_of(given: Any, folder: Path) -> dict[str, Any]:
    """The facts that a DeepSpeed configuration states: a mapping, the path of a file that is here,
    or a name such as ``zero3_offload.json``, whose content is then a value of the axis offload."""
    if isinstance(given, Mapping):
        return {"deepspeed": usable(given)}
    for path in (folder / str(given), Path(str(given))):
        try:
            return {"deepspeed": usable(json.loads(path.read_text(encoding="utf-8")))}
        except (OSError, ValueError):
            continue
    return _named(str(given))


def usable(content: Mapping[str, Any]) -> dict[str, Any]:
    """A DeepSpeed configuration in which the trial decides the batch and the precision."""
    kept = {key: value for key, value in content.items() if key not in _BATCH}
    for section in ("bf16", "fp16"):
        if isinstance(kept.get(section), Mapping):
            kept[section] = {**kept[section], "enabled": "auto"}
    return {**kept, **dict.fromkeys(_BATCH, "auto")}


def _named(name: str) -> dict[str, Any]:
    found = re.search(r"(?:zero|z)_?([0-3])(.*)", Path(name).stem.lower())
    if found is None:
        return {}
    stage, rest = found[1], found[2]
    facts: dict[str, Any] = {"zero.stage": int(stage)}
    if "offload" in rest:
        facts["zero.parameters"] = "cpu"
        if "param" not in rest:
            facts["zero.optimizer"] = "cpu"
    return facts
