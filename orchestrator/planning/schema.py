"""The JSON schema of a sweep's YAML file, for editors: ``python -m orchestrator.planning.schema``."""

from __future__ import annotations

import json
from typing import Any

from jobs.techniques import AXES, Axis
from orchestrator.planning.arguments import RUNNER, RUNNER_PREFIXES, owned_arguments
from orchestrator.planning.axes import ACCUMULATION, EFFECTIVE_BATCH
from orchestrator.planning.schema_models import SweepSection

_ARGUMENT = {"type": ["string", "number", "boolean", "null"]}


def json_schema() -> dict[str, Any]:
    """The schema, from the same models and technique rows that check the file."""
    schema = SweepSection.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "A sweep of training configurations"
    schema["$defs"] |= {
        "axis_argument": _ARGUMENT,
        **{f"axis_{name}": _value(axis) for name, axis in AXES.items()},
    }
    schema["$defs"][f"axis_{EFFECTIVE_BATCH}"] = {
        "type": "integer",
        "minimum": 1,
        "description": "samples per optimizer step; the accumulation follows from the micro-batch",
    }
    grid, assignment = _points(many=True), _points(many=False)
    schema["$defs"] |= {"grid": grid, "assignment": assignment}
    for section, key in ((schema, "axes"), (schema["$defs"]["SubsetSection"], "axes")):
        section["properties"][key] = _described(
            section["properties"][key], {"$ref": "#/$defs/grid"}
        )
    schema["properties"]["baseline"] = _described(
        schema["properties"]["baseline"], {"$ref": "#/$defs/assignment"}
    )
    schema["properties"]["training_arguments"]["anyOf"][0]["propertyNames"] = _not_of([*RUNNER])
    kinds = schema["$defs"]["SearchSection"]["properties"]["kind"]
    search = {
        "anyOf": [
            {"$ref": "#/$defs/SearchSection"},
            {k: kinds[k] for k in ("const", "enum") if k in kinds},
        ]
    }
    schema["properties"]["search"] = _described(schema["properties"]["search"], search)
    schema["properties"]["exclude"]["items"] = {"$ref": "#/$defs/grid"}
    schema["properties"]["trials"]["items"] = {"$ref": "#/$defs/assignment"}
    return schema


def _value(axis: Axis) -> dict[str, Any]:
    if axis.integer_argument:
        return {"type": "integer", "minimum": 1, "description": axis.doc.rstrip(":")}
    variants = [
        {"const": name, "description": variant.doc} for name, variant in axis.variants.items()
    ]
    return {"oneOf": variants, "description": f"{axis.doc}; default: {axis.default}"}


def _points(*, many: bool) -> dict[str, Any]:
    """A mapping of axis -> value, or to a value or list of values."""
    references = {name: {"$ref": f"#/$defs/axis_{name}"} for name in (*AXES, EFFECTIVE_BATCH)}
    argument = {"$ref": "#/$defs/axis_argument"}
    return {
        "type": "object",
        "properties": {
            name: _one_or_more(one) if many else one for name, one in references.items()
        },
        "additionalProperties": _one_or_more(argument) if many else argument,
        "propertyNames": _not_of([*owned_arguments(), *RUNNER]),
        "not": {"required": [ACCUMULATION, EFFECTIVE_BATCH]},
    }


def _not_of(names: list[str]) -> dict[str, Any]:
    return {
        "not": {"anyOf": [{"enum": sorted(names)}, {"pattern": f"^({'|'.join(RUNNER_PREFIXES)})"}]}
    }


def _one_or_more(one: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [one, {"type": "array", "items": one, "minItems": 1, "uniqueItems": True}]}


def _described(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    return {**new, "description": old["description"]} if "description" in old else new


def main() -> None:
    """Print the schema."""
    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main()
