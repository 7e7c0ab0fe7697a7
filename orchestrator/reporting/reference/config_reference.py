"""The configuration reference: ``python -m orchestrator.reporting.reference.config_reference``."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from jobs.techniques import AXES, Axis
from orchestrator.planning.choices.axes import EFFECTIVE_BATCH
from orchestrator.planning.keys.loggers import LOGGERS
from orchestrator.planning.keys.schema import keys_schema
from orchestrator.planning.keys.search_options import DEFAULT_SEARCH, SEARCH_KINDS
from orchestrator.reporting.markdown import line
from orchestrator.reporting.reference import one_line, rendered

_SCALARS = {"string": "text", "boolean": "true or false", "object": "mapping"}
"""JSON's name of a type -> ours."""
_BOUNDS = {
    "minimum": "from",
    "exclusiveMinimum": "above",
    "maximum": "to",
    "exclusiveMaximum": "to below",
}
_REQUIREMENTS: Mapping[str, str] = {
    "cuda": "a CUDA GPU",
    "bf16": "a GPU with bf16, or a CPU",
    "no_attention_dropout": "a model without attention dropout",
    "experts": "a mixture of experts",
    "text_task": "a model of text",
    "tokens": "rows of tokens",
    "several_gpus": "`resources.gpus_per_trial` above 1",
    "fsdp2": "GPUs",
    "hub_layers": "a model whose layers have kernels on the Hub",
    "package:": "the package `{}`",
    "capability>=": "compute capability {} or newer",
    "transformers>=": "transformers {} or newer",
    "torch>=": "torch {} or newer",
    "trl>=": "TRL {} or newer",
    "deepspeed_op:": "DeepSpeed's op `{}`",
    "task:": "the task `{}`",
    "hub_kernel:": "the package `kernels` and the kernel `{}`",
    "virtual_tokens:": "the parameter `num_virtual_tokens`, and positions for as many more tokens",
}
"""Requirement, or the beginning of one with an argument -> its words."""


def render() -> str:
    """The page as Markdown."""
    schema = keys_schema()
    definitions = schema["$defs"]
    loggers = [
        (name, logger.package, definitions[logger.__name__]) for name, logger in LOGGERS.items()
    ]
    return rendered(
        "config_reference.md.j2",
        sections=[("Top level", schema), *_nested_sections(schema, definitions)],
        axes=AXES.values(),
        effective_batch=EFFECTIVE_BATCH,
        default_search=DEFAULT_SEARCH,
        searches=[(kind, definitions[own.__name__]) for kind, own in SEARCH_KINDS.items()],
        loggers=loggers,
        keys=_keys,
        values=_values,
        families=_families,
        arguments=_arguments,
        table=_table,
    )


def _nested_sections(
    section: dict[str, Any], definitions: dict[str, Any], path: str = ""
) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, key in section["properties"].items():
        if name in ("search", "loggers"):
            continue
        for part in (key, key.get("additionalProperties"), *key.get("anyOf", ())):
            if isinstance(part, dict) and "$ref" in part:
                nested = definitions[part["$ref"].rpartition("/")[2]]
                yield f"`{path}{name}`", nested
                yield from _nested_sections(nested, definitions, f"{path}{name}.")


def _keys(head: str, keys: dict[str, Any], required: Sequence[str] = ()) -> str:
    rows = []
    for name, key in keys.items():
        default = key.get("default")
        if isinstance(default, bool):
            default = str(default).lower()
        is_shown = default is not None and not isinstance(default, (dict, list))
        written = "required" if name in required else f"`{default}`" if is_shown else ""
        if (head, name) != ("option", "kind"):
            meaning = one_line(key.get("description", ""))
            rows.append([f"`{name}`", _type(key), written, meaning])
    return _table([head, "type", "default", "meaning"], rows)


def _type(schema: dict[str, Any]) -> str:
    """A JSON schema in words: ``integer from 1 or `epoch` ``."""
    if "$ref" in schema:
        return "section"
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "anyOf" in schema:
        # A key that may be left out is described by its default.
        kinds = [_type(part) for part in schema["anyOf"] if part.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if schema["type"] == "array":
        kind = _type(schema["items"])
        return f"list of {kind}s" if kind in ("mapping", "text") else f"list of {kind}"
    if "examples" in schema:
        return f"text such as `{schema['examples'][0]}`"
    name = _SCALARS.get(schema["type"], schema["type"])
    bounds = [f" {words} {schema[key]:.15g}" for key, words in _BOUNDS.items() if key in schema]
    return "".join([name, *bounds])


def _values(axis: Axis) -> Iterator[list[str]]:
    """A row for each named value, and one for the values that a pattern describes."""
    for name, variant in axis.variants.items():
        needs = ", ".join(map(_requirement, variant.requires))
        yield [f"`{name}`", variant.doc, needs, variant.numerical_effect]
    if axis.pattern is not None:
        yield [f"`{axis.pattern.form}`", axis.pattern.doc, "", ""]


def _requirement(requirement: str) -> str:
    beginning = next(own for own in _REQUIREMENTS if requirement.startswith(own))
    return _REQUIREMENTS[beginning].format(requirement.removeprefix(beginning))


def _families(axis: Axis) -> Iterator[list[str]]:
    for name, family in axis.families.items():
        yield [f"`{name}`", family.doc, f"`{family.config_class.partition(':')[2]}`"]


def _arguments(arguments: dict[str, Any]) -> str:
    rows = [[f"`{key}`", value["description"]] for key, value in arguments.items()]
    return _table(["argument", "meaning"], rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [line(head), line(["---"] * len(head))]
    lines += [line(cell.replace("|", "\\|") for cell in cells) for cells in rows]
    return "\n".join(lines)


if __name__ == "__main__":
    print(render(), end="")
