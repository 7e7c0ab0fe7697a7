"""The facts of the installed libraries, by importing them: fields, defaults and types."""

import contextlib
import dataclasses
import functools
import importlib.util
import inspect
import pkgutil
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from jobs.library_facts.value_types import parameters_of

_FROM_KWARGS = re.compile(r'\bkwargs\.(?:pop|get)\(\s*"(\w+)"')
"""A key that a constructor takes out of its ``**kwargs``."""
_ROTARY_KEYS = frozenset({"rope_scaling", "rope_theta", "partial_rotary_factor"})
"""Keys that a class with ``rope_parameters`` moves into it; other classes ignore them."""


class Configurations:
    """The configuration classes of all model types, and of the parts of their configurations."""

    def __init__(self) -> None:
        from transformers import CONFIG_MAPPING, AutoConfig
        from transformers.configuration_utils import PreTrainedConfig

        self.by_name: dict[str, dict[str, Any]] = {}
        """Name of a class -> its facts, without the keys and defaults that all classes have."""
        self.of_model_type: dict[str, str] = {}  # model type -> name of its class
        self._mapping = CONFIG_MAPPING
        self._auto = AutoConfig
        self.common_keys = _keys(PreTrainedConfig)
        self.common_defaults = _class_defaults(PreTrainedConfig)
        for model_type in CONFIG_MAPPING.keys():  # noqa: SIM118, it is no mapping
            self.of_model_type[model_type] = self._add(CONFIG_MAPPING[model_type])

    def _add(self, kind: type) -> str:
        """Add a class and those of its parts. Returns its name."""
        name = kind.__name__
        if name in self.by_name:
            return name
        common = self.common_defaults
        defaults = {
            key: value
            for key, value in _class_defaults(kind).items()
            if key not in common or value != common[key]
        }
        other_names: dict[str, str] = dict(kind.attribute_map)  # type: ignore[attr-defined]
        keys = _keys(kind) - defaults.keys() - other_names.keys() - self.common_keys
        facts: dict[str, Any] = {
            "module": kind.__module__.removeprefix("transformers.models.").partition(".")[0],
            "defaults": defaults,
            "other_names": other_names,
            "keys": sorted(keys),
        }
        self.by_name[name] = facts
        facts["parts"] = dict(self._parts(kind))
        return name

    def _parts(self, kind: Any) -> Iterator[tuple[str, str]]:
        """Key -> class of the configuration below it; empty if the class depends on the model."""
        # transformers 5.23 says more of each part than its class.
        parts = getattr(kind, "sub_configs_defaults", None) or kind.sub_configs
        for key, part in parts.items():
            part_class = getattr(part, "config_class", part)
            model_type: Any = getattr(part, "model_type", None)
            if part_class is not self._auto:
                yield key, self._add(part_class)
            elif model_type in self._mapping:
                yield key, self._add(self._mapping[model_type])
            else:
                yield key, ""


def _keys(kind: type) -> set[str]:
    fields = {field.name for field in dataclasses.fields(kind)}
    keys = set(fields)
    for base in kind.__mro__:
        for name, member in vars(base).items():
            if isinstance(member, property) and member.fset and not name.startswith("_"):
                keys.add(name)
            if name in ("__init__", "__post_init__"):
                keys |= _constructor_keys(member)
    if "rope_parameters" in fields:
        return keys | _ROTARY_KEYS
    return keys - (_ROTARY_KEYS - fields)


@functools.cache
def _constructor_keys(function: Any) -> frozenset[str]:
    """Parameters of a constructor, and what it takes out of ``**kwargs``."""
    keys = set()
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            keys.add(parameter.name)
    with contextlib.suppress(OSError, TypeError):  # a decorator's function has no source
        keys |= set(_FROM_KWARGS.findall(inspect.getsource(function)))
    return frozenset(key for key in keys if key != "self" and not key.startswith("_"))


def _class_defaults(kind: type) -> dict[str, Any]:
    fields = dataclasses.fields(kind)
    return {field.name: field.default for field in fields if is_plain(field.default)}


def is_plain(value: Any) -> bool:
    """Whether JSON can write a value as it is."""
    if isinstance(value, (list, tuple)):
        return all(map(is_plain, value))
    return value is None or type(value) in (bool, int, float, str)


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
