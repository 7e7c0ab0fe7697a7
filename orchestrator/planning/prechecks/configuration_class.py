"""What a configuration class of the installed transformers knows, read from its source's text.

Importing transformers takes seconds, and a config's check must be instant.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.planning.arguments import (
    configuration_classes,
    module_of,
    plain_value,
    source,
    sources,
)

_BASE_CLASS = "PreTrainedConfig"
_BASE_NAMES = (_BASE_CLASS, "PretrainedConfig")
_BASE_FILE = "configuration_utils.py"
_BASE_END = "\n    def __init_subclass__"
"""What follows the base class's fields and its ``__post_init__``."""
_SUB_CONFIGS = ("sub_configs", "sub_configs_defaults")
"""The class attribute that maps a key to another configuration class, old and new name."""
_ROTARY_KEYS = frozenset({"rope_scaling", "rope_theta", "partial_rotary_factor"})
"""Keys that a class with ``rope_parameters`` still takes and moves into it."""
_CONSTRUCTORS = ("__init__", "__post_init__")
_MAX_BASES = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfigurationClass:
    """A configuration class and all it inherits."""

    name: str
    module: str
    """The folder of its architecture in ``transformers/models``."""
    keys: frozenset[str]
    """The keys that its constructor uses."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Key -> its default, if that is a plain value."""
    other_names: Mapping[str, str] = field(default_factory=dict)
    """The common name of a key -> the class's own, as ``hidden_size`` -> ``n_embd``."""
    sub_configs: Mapping[str, str] = field(default_factory=dict)
    """Key -> the configuration class, or the model type, of the mapping under it."""

    def value(self, name: str, given: Mapping[str, Any]) -> Any:
        """A key's value under both its names: as given, else its default; None if unknown."""
        names = {name, self.other_names.get(name, name)}
        for key in sorted(names):
            if key in given:
                return given[key]
        for key in sorted(names):
            if key in self.defaults:
                return self.defaults[key]
        return None


@functools.cache
def configuration_class(model_type: str) -> ConfigurationClass | None:
    """The class of a model type.

    None if transformers is not installed, or if the class cannot be read whole.
    """
    classes = configuration_classes() or {}
    name = classes.get(model_type)
    if name is None:
        return None
    # An alias such as "gpt-sw3" has no folder of its own, but the class of another model type.
    aliases = [other for other in classes if classes[other] == name]
    for alias in (model_type, *aliases):
        described_class = named_class(name, module_of(alias))
        if described_class is not None:
            return described_class
    return None


@functools.cache
def named_class(name: str, module: str) -> ConfigurationClass | None:
    """A class by its name, defined in or imported by a module of ``transformers/models``.

    None if the class cannot be read whole, up to the base of all configurations.
    """
    definitions = list(_inheritance_chain(name, module))
    if not definitions or definitions[-1].name != _BASE_CLASS:
        return None
    # From the base down, so that a class overrides what it inherits.
    definitions.reverse()
    fields: dict[str, Any] = {}
    taken_keys: set[str] = set()
    for definition in definitions:
        fields |= _fields_of(definition)
        taken_keys |= _constructor_keys(definition)
    other_names, sub_configs = _class_attributes(definitions)
    return ConfigurationClass(
        name=name,
        module=module,
        keys=_keys(fields.keys(), taken_keys) | other_names.keys(),
        defaults={key: value for key, value in fields.items() if value is not _UNKNOWN},
        other_names=other_names,
        sub_configs=sub_configs,
    )


def _class_attributes(
    definitions: Iterable[ast.ClassDef],
) -> tuple[dict[str, str], dict[str, str]]:
    """Other name -> key, and key -> class of the configuration below it."""
    other_names: dict[str, str] = {}
    sub_configs: dict[str, str] = {}
    for definition in definitions:
        attributes = _attributes_of(definition)
        other_names |= _texts(attributes.get("attribute_map"))
        for attribute in _SUB_CONFIGS:
            sub_configs |= _classes(attributes.get(attribute))
    return other_names, sub_configs


def _keys(fields: Collection[str], taken_keys: Collection[str]) -> frozenset[str]:
    """The keys that a class with these fields uses, without the other names of its keys."""
    keys = {*fields, *taken_keys, *_settable_properties()}
    if "rope_parameters" in fields:
        return frozenset(keys | _ROTARY_KEYS)
    # The base class looks at these keys for every model, but does nothing with them here.
    return frozenset(keys - (_ROTARY_KEYS - set(fields)))


def reads_key(module: str, key: str) -> bool:
    """Whether the model's own code names a key that its configuration class does not declare."""
    text = source(f"models/{module}/modeling_{module}.py") or ""
    return re.search(rf'config\.{re.escape(key)}\b|"{re.escape(key)}"', text) is not None


_UNKNOWN = object()
"""A default that is not a plain value."""


def _inheritance_chain(name: str, module: str) -> Iterator[ast.ClassDef]:
    """The class and its bases, one after the other; mixins are left out."""
    for _ in range(_MAX_BASES):
        if name in _BASE_NAMES:
            yield from _base_class()
            return
        tree = _tree_with(name, module)
        if tree is None:
            return
        definition = _definition(tree, name)
        if definition is None:
            # The class comes from another architecture: ``from ..llama.… import LlamaConfig``.
            module = _module_imported_from(tree, name)
            continue
        yield definition
        bases = [base.id for base in definition.bases if isinstance(base, ast.Name)]
        configurations = [base for base in bases if base.endswith("Config")]
        if not configurations:
            return
        name = configurations[0]


@functools.cache
def _tree_with(name: str, module: str) -> ast.Module | None:
    """The module's file that defines a class, else the one that imports it."""
    texts = sources(f"models/{module}", "configuration_*.py")
    for pattern in (rf"^class {name}\(", rf"^from .*\b{name}\b"):
        for text in texts:
            if re.search(pattern, text, re.MULTILINE):
                return ast.parse(text)
    return None


@functools.cache
def _base_class() -> tuple[ast.ClassDef, ...]:
    """The base of all configuration classes; empty if it is not found in its source file."""
    text = source(_BASE_FILE) or ""
    start = text.find(f"class {_BASE_CLASS}(")
    end = text.find(_BASE_END, start)
    if start < 0 or end < 0:
        return ()
    # Only the part with the fields is parsed: the whole file would take ten times as long.
    (definition,) = ast.parse(text[start:end]).body
    assert isinstance(definition, ast.ClassDef)
    return (definition,)


@functools.cache
def _settable_properties() -> frozenset[str]:
    """Properties of the base class that a constructor's keyword sets, such as num_labels."""
    names = re.findall(r"@(\w+)\.setter", source(_BASE_FILE) or "")
    return frozenset(name for name in names if not name.startswith("_"))


def _definition(tree: ast.Module, name: str) -> ast.ClassDef | None:
    for statement in tree.body:
        if isinstance(statement, ast.ClassDef) and statement.name == name:
            return statement
    return None


def _module_imported_from(tree: ast.Module, name: str) -> str:
    """The folder that a class is imported from; empty if it is not imported from another."""
    for statement in tree.body:
        if not isinstance(statement, ast.ImportFrom) or not statement.module:
            continue
        names = {alias.name for alias in statement.names}
        if name in names and statement.level > 1:
            # ``from ..llama.configuration_llama import`` and ``from ...models.llama.… import``.
            return statement.module.removeprefix("models.").partition(".")[0]
    return ""


def _fields_of(definition: ast.ClassDef) -> dict[str, Any]:
    """A dataclass's fields with their defaults, without its class variables."""
    fields: dict[str, Any] = {}
    for statement in definition.body:
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        if not ast.unparse(statement.annotation).startswith("ClassVar"):
            fields[statement.target.id] = _plain_value(statement.value)
    return fields


def _plain_value(node: ast.expr | None) -> Any:
    return plain_value(node, unknown=_UNKNOWN)


def _constructor_keys(definition: ast.ClassDef) -> set[str]:
    """Parameters of the constructors, and what they take out of ``**kwargs``."""
    keys: set[str] = set()
    for statement in definition.body:
        if not isinstance(statement, ast.FunctionDef) or statement.name not in _CONSTRUCTORS:
            continue
        parameters = [*statement.args.args, *statement.args.kwonlyargs]
        keys |= {parameter.arg for parameter in parameters if parameter.arg != "self"}
        for node in ast.walk(statement):
            keys |= _taken_from_kwargs(node)
    return {key for key in keys if not key.startswith("_")}


def _taken_from_kwargs(node: ast.AST) -> set[str]:
    match node:
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="kwargs"), attr="pop" | "get"),
            args=[ast.Constant(value=str() as key), *_],
        ):
            return {key}
    return set()


def _attributes_of(definition: ast.ClassDef) -> dict[str, ast.expr]:
    attributes: dict[str, ast.expr] = {}
    for statement in definition.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                attributes[name] = value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                attributes[name] = value
    return attributes


def _texts(node: ast.expr | None) -> dict[str, str]:
    """A literal mapping of texts to texts; empty for anything else."""
    value = _plain_value(node)
    if not isinstance(value, dict):
        return {}
    return value


def _classes(node: ast.expr | None) -> dict[str, str]:
    """A literal mapping of keys to classes, or to a ``SubConfigSpec`` of one."""
    classes: dict[str, str] = {}
    if not isinstance(node, ast.Dict):
        return classes
    for key, value in zip(node.keys, node.values, strict=True):
        if isinstance(key, ast.Constant):
            classes[str(key.value)] = _class_name(value)
    return classes


def _class_name(node: ast.expr) -> str:
    """The class, or the model type if the class is chosen by it; empty if neither is known."""
    match node:
        case ast.Name(id="AutoConfig"):
            return ""
        case ast.Name(id=name):
            return name
        case ast.Call(args=[ast.expr() as first, *_]) if _class_name(first):
            return _class_name(first)
        case ast.Call(keywords=keywords):
            named = {keyword.arg: keyword.value for keyword in keywords}
            if "config_class" in named and _class_name(named["config_class"]):
                return _class_name(named["config_class"])
            model_type = _plain_value(named.get("model_type"))
            if isinstance(model_type, str):
                return model_type
    return ""
