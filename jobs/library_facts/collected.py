"""The facts of the installed libraries, by importing them: fields, defaults and types."""

import dataclasses
import importlib.util
import pkgutil
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jobs.library_facts.configurations import Configurations, is_plain
from jobs.library_facts.value_types import parameters_of

_POSITIONS = re.compile(
    r"Embedding\(\s*config\.(max_position_embeddings|n_positions)\b"
    r"|max_positions = config\.max_position_embeddings\b"
)
"""A model with a table of positions, which ends where the configuration says."""
_OFFSET = "create_position_ids_from_input_ids"
"""RoBERTa and its relatives count positions from the padding token's id on."""
_EXPERTS = "@use_experts_implementation"
"""Marks experts. PreTrainedModel._can_set_experts_implementation looks for the same text."""
_CHECKPOINTING = (
    "supports_gradient_checkpointing = True",
    "self.supports_gradient_checkpointing = ",
)
"""What the source of a model says if it can checkpoint its activations, or finds out itself."""
_OWN_BASE_CLASS = "(PreTrainedModel)"
"""What it says if it does not take over the abilities of another model."""
_LIGER_TABLE = re.compile(r"^MODEL_TYPE_TO_APPLY_LIGER_FN = \{(.*?)^\}", re.MULTILINE | re.DOTALL)
_NAMES = re.compile(r'config\.([a-z]\w*)|"([a-z]\w*)"')
"""Keys of a configuration that the source may read, although no class declares them."""


def collected(references: Iterable[str]) -> dict[str, Any]:
    """All facts. ``references`` are the classes ``module:Class`` whose parameters are wanted."""
    import transformers

    configurations = Configurations()
    folder = Path(transformers.__file__).parent / "models"
    return {
        "training_arguments": _defaults(transformers.TrainingArguments),
        "argument_values": _argument_values(),
        "argument_types": parameters_of(transformers.TrainingArguments),
        "model_types": configurations.of_model_type,
        "configurations": configurations.by_name,
        "common_keys": sorted(configurations.common_keys),
        "common_defaults": configurations.common_defaults,
        "models": {path.name: _model(path) for path in sorted(folder.iterdir()) if path.is_dir()},
        "parameters": {reference: _parameters(reference) for reference in references},
        "liger_model_types": _liger_model_types(),
    }


def _defaults(arguments: Any) -> dict[str, Any]:
    """Field -> its default in a list; an empty one if that is not a plain value."""
    fields = [field for field in dataclasses.fields(arguments) if field.init]
    return {field.name: [field.default] if is_plain(field.default) else [] for field in fields}


def _argument_values() -> dict[str, list[str]]:
    """Field of ``TrainingArguments`` of type text -> the only values that it takes."""
    from torch._dynamo import list_backends
    from transformers.trainer_utils import SchedulerType
    from transformers.training_args import OptimizerNames

    return {
        "optim": [own.value for own in OptimizerNames],
        "lr_scheduler_type": [own.value for own in SchedulerType],
        # Those for debugging, too: they have tags that the default leaves out.
        "torch_compile_backend": list_backends(None),
    }


def _model(folder: Path) -> dict[str, Any]:
    """What the source of an architecture says, which would take minutes to import for all."""
    texts = {path: path.read_text(encoding="utf-8") for path in folder.glob("modeling_*.py")}
    text = "".join(texts.values())
    own = texts.get(folder / f"modeling_{folder.name}.py", "")
    return {
        "has_position_table": bool(_POSITIONS.search(text)),
        "counts_from_padding": _OFFSET in text,
        "has_experts": not text or _EXPERTS in text,
        "can_checkpoint": _OWN_BASE_CLASS not in text
        or any(mark in text for mark in _CHECKPOINTING),
        "names": sorted({name for pair in _NAMES.findall(own) for name in pair if name}),
    }


def _parameters(reference: str) -> dict[str, Any] | None:
    """The parameters of a class; None if its library is not installed, or has no such class."""
    try:
        return parameters_of(pkgutil.resolve_name(reference))
    except (ImportError, AttributeError):
        return None


def _liger_model_types() -> list[str] | None:
    """The model types of the installed Liger; None if it is not installed, or is another one."""
    # Without a GPU it cannot be imported, so its table is read.
    package = importlib.util.find_spec("liger_kernel")
    if package is None:
        return None
    for folder in package.submodule_search_locations or []:
        path = Path(folder, "transformers", "monkey_patch.py")
        table = _LIGER_TABLE.search(path.read_text(encoding="utf-8")) if path.is_file() else None
        if table is not None:
            return re.findall(r'"([^"]+)":', table[1])
    return None
