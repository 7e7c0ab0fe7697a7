"""The JSON schema of the config, for editors: ``python -m orchestrator.planning.keys.schema``."""

import ast
import inspect
import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

from pydantic import BaseModel

from jobs.techniques import AXES, Axis, Family
from orchestrator.planning.choices.arguments import RUNNER, RUNNER_PREFIXES
from orchestrator.planning.choices.axes import ACCUMULATION, EFFECTIVE_BATCH, owned_arguments
from orchestrator.planning.keys.config_model import ConfigFile
from orchestrator.planning.keys.config_types import keys_of, sections_in
from orchestrator.planning.keys.loggers import LOGGERS
from orchestrator.planning.keys.search_options import DEFAULT_SEARCH, SEARCH_KINDS

_EFFECTIVE_BATCH = {
    "type": "integer",
    "minimum": 1,
    "description": "samples per optimizer step; the accumulation follows from the micro-batch",
}


def json_schema() -> dict[str, Any]:
    """The schema, from the same models and technique rows that check the file."""
    schema = keys_schema()
    # The dialect that pydantic writes.
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "A sweep of training configurations"
    schema["$defs"] |= _axis_definitions()
    properties = schema["properties"]
    # The models leave axes open, because techniques are rows and not fields.
    _refer(properties, "axes", "grid")
    _refer(schema["$defs"]["SubsetSection"]["properties"], "axes", "grid")
    _refer(properties, "baseline", "assignment")
    properties["exclude"]["items"] = _reference("grid")
    properties["trials"]["items"] = _reference("assignment")
    properties["training_arguments"]["anyOf"][0]["propertyNames"] = _none_of([*RUNNER])
    return schema


def keys_schema() -> dict[str, Any]:
    """The schema of the config model. Each key's docstring is its description. pydantic can read
    the docstrings, too (``use_attribute_docstrings``). But it would do so whenever the models are
    imported, which takes a tenth of the time of a dry run."""
    schema = ConfigFile.model_json_schema()
    sections: list[type[BaseModel]] = [ConfigFile, *_sections_below(ConfigFile)]
    for section in dict.fromkeys(sections):
        described = schema["$defs"].get(section.__name__, schema)
        for name, _, meaning in documented_fields(section):
            if meaning and name in section.model_fields:
                key = section.model_fields[name].alias or name
                meant = {"description": meaning, **described["properties"][key]}
                described["properties"][key] = meant
    _add_search(schema)
    _add_loggers(schema)
    return schema


def _sections_below(section: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for annotation in keys_of(section).values():
        for below in sections_in(annotation):
            yield below
            yield from _sections_below(below)


def documented_fields(kind: type) -> Iterator[tuple[str, str, str]]:
    """Name, annotation and docstring of each field, from the source of the class."""
    (definition,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(definition, ast.ClassDef)
    for statement, below in itertools.pairwise([*definition.body, ast.Pass()]):
        if isinstance(statement, ast.AnnAssign):
            match below:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    doc = inspect.cleandoc(text).strip()
                case _:
                    doc = ""
            yield ast.unparse(statement.target), ast.unparse(statement.annotation), doc


def _add_search(schema: dict[str, Any]) -> None:
    """A search is written as its kind or as a mapping, in which only the default kind may be left
    out."""
    names = []
    for kind, search in SEARCH_KINDS.items():
        definition = schema["$defs"][search.__name__]
        definition["properties"]["kind"]["description"] = definition["description"]
        names.append({"const": kind, "description": definition["description"]})
        if kind != DEFAULT_SEARCH.kind:
            definition["required"] = ["kind"]
    choice = schema["properties"]["search"]
    choice["anyOf"] = [*names, *choice.pop("oneOf")]
    del choice["discriminator"]
    choice["default"] = DEFAULT_SEARCH.kind


def _add_loggers(schema: dict[str, Any]) -> None:
    """Loggers are written as a list of names, or as a mapping of names to arguments."""
    names = {"type": "array", "items": {"enum": list(LOGGERS)}, "uniqueItems": True}
    choice = schema["properties"]["loggers"]
    choice["anyOf"] = [names, {"$ref": choice.pop("$ref")}]
    choice.pop("default", None)


def _axis_definitions() -> dict[str, Any]:
    return {
        **{f"axis_{name}": _axis(axis) for name, axis in AXES.items()},
        f"axis_{EFFECTIVE_BATCH}": _EFFECTIVE_BATCH,
        "axis_argument": {"type": ["string", "number", "boolean", "null"]},
        "assignment": _axis_mapping(_reference),
        "grid": _axis_mapping(_one_or_more),
    }


def _axis(axis: Axis) -> dict[str, Any]:
    # An axis of integers has no named variants.
    integer = {"type": "integer", "minimum": 1, "description": axis.doc.rstrip(":")}
    if axis.integer_argument:
        return integer
    variants: list[dict[str, Any]] = [integer] if axis.takes_integers else []
    variants += ({"const": name, "description": row.doc} for name, row in axis.variants.items())
    if axis.pattern is not None:
        # The values that fit the pattern and are not listed by name.
        of_pattern = {"type": "string", "pattern": f"^{axis.pattern.pattern}$"}
        listed = {"enum": list(axis.variants)}
        variants.append({**of_pattern, "not": listed, "description": axis.pattern.doc})
    for name, family in axis.families.items():
        # If a listed name also fits the pattern, it must match only one of the two.
        if name not in axis.variants:
            variants.append({"const": name, "description": family.doc})
        variants += _with_parameters(name, family)
    return {"oneOf": variants, "description": f"{axis.doc}; default: {axis.default}"}


def _with_parameters(name: str, family: Family) -> list[dict[str, Any]]:
    return [
        {"type": "string", "pattern": rf"^\s*{name}\s*\(", "description": family.doc},
        {
            "type": "object",
            "properties": {name: {"type": ["object", "null"], "description": family.doc}},
            "required": [name],
            "additionalProperties": False,
        },
    ]


def _axis_mapping(value_of: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: value_of(f"axis_{name}") for name in (*AXES, EFFECTIVE_BATCH)},
        "additionalProperties": value_of("axis_argument"),
        "propertyNames": _none_of([*owned_arguments(), *RUNNER]),
        "not": {"required": [ACCUMULATION, EFFECTIVE_BATCH]},
    }


def _none_of(names: list[str]) -> dict[str, Any]:
    # An editor refuses what load_config would refuse.
    prefixes = "|".join(RUNNER_PREFIXES)
    return {"not": {"anyOf": [{"enum": sorted(names)}, {"pattern": f"^({prefixes})"}]}}


def _one_or_more(definition: str) -> dict[str, Any]:
    item = _reference(definition)
    items = {"type": "array", "items": item, "minItems": 1, "uniqueItems": True}
    return {"anyOf": [item, items]}


def _reference(definition: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{definition}"}


def _refer(properties: dict[str, Any], key: str, definition: str) -> None:
    properties[key] = {**_reference(definition), "description": properties[key]["description"]}


def main() -> None:
    """Print the schema."""
    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main()
