"""The configuration reference: ``python -m orchestrator.reporting.config_reference``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from jobs.techniques import AXES, Axis
from orchestrator.planning.axes import EFFECTIVE_BATCH
from orchestrator.planning.loggers import LOGGERS
from orchestrator.planning.schema import keys_schema
from orchestrator.planning.search_options import DEFAULT_SEARCH, SEARCH_KINDS
from orchestrator.reporting.markdown import line

INTRODUCTION = """\
# Configuration reference

Generated from the source by `make schema`. A sweep is one YAML file. Only `model` is required:

```yaml
model: {task: causal-lm, architecture: llama}
axes: {micro_batch: [1, 2, 4], precision: [fp32, bf16]}
```

Sizes are written as `16GiB`, `24GB` or bytes, and times as `300s`, `5m`, `1h30m` or seconds. Paths
of models, data and argument files are relative to the folder of the YAML file. `output` is relative
to the working folder. An unknown key is an error. `--dry-run` checks a file and prints its plan."""

AXES_INTRODUCTION = """\
The keys `axes`, `trials`, `baseline` and `exclude` name axes, each with one value or a list of
values. Any other field of `TrainingArguments` can also be an axis, with plain values.

The last column compares the training results with those of the axis's default.
It says *exact* for the same numbers, and *rounding* for the same training with other rounding. It
says *training* for a different training, which is ranked separately."""

_SCALARS = {"string": "text", "boolean": "true or false", "object": "mapping"}
"""JSON's name of a type -> ours."""
_BOUNDS = {
    "minimum": "from",
    "exclusiveMinimum": "above",
    "maximum": "to",
    "exclusiveMaximum": "to below",
}
_REQUIREMENTS = {
    "cuda": "a CUDA GPU",
    "bf16": "a GPU with bf16, or a CPU",
    "no_attention_dropout": "a model without attention dropout",
    "experts": "a mixture of experts",
    "text_task": "a model of text",
    "hub_layers": "a model whose layers have kernels on the Hub",
}
"""Requirement without an argument -> its words."""
_REQUIREMENT_PREFIXES: Mapping[str, str] = {
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
"""Prefix of a requirement with an argument -> its words."""


def render() -> str:
    """The page as Markdown."""
    schema = keys_schema()
    definitions = schema["$defs"]
    lines = [INTRODUCTION]
    lines += _section("Top level", schema)
    for path, section in _nested_sections(schema, definitions):
        lines += _section(f"`{path}`", section)
    lines += ["", "## Axes", "", AXES_INTRODUCTION]
    for axis in AXES.values():
        lines += _axis(axis)
    lines += [
        "",
        f"### `{EFFECTIVE_BATCH}`",
        "",
        "Samples per optimizer step, held fixed while the micro-batch varies: the accumulation "
        "follows. An integer from 1. Not together with `accumulation`.",
    ]
    lines += _searches(definitions)
    lines += _loggers(definitions)
    return "\n".join(lines) + "\n"


def _nested_sections(
    section: dict[str, Any], definitions: dict[str, Any], path: str = ""
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every section with the path that leads to it, without the searches and the loggers."""
    for name, key in section["properties"].items():
        if name in ("search", "loggers"):
            continue
        for part in (key, key.get("additionalProperties"), *key.get("anyOf", ())):
            if isinstance(part, dict) and "$ref" in part:
                nested = definitions[part["$ref"].rpartition("/")[2]]
                yield f"{path}{name}", nested
                yield from _nested_sections(nested, definitions, f"{path}{name}.")


def _section(title: str, section: dict[str, Any]) -> Iterator[str]:
    yield from ("", f"## {title}", "", _one_line(section["description"]), "")
    yield from _keys("key", section["properties"], section.get("required", ()))


def _keys(head: str, keys: dict[str, Any], required: Sequence[str] = ()) -> Iterator[str]:
    """A table of keys."""
    rows = []
    for name, key in keys.items():
        meaning = _one_line(key.get("description", ""))
        default = key.get("default")
        if isinstance(default, bool):
            default = str(default).lower()
        is_shown = default is not None and not isinstance(default, (dict, list))
        written = "required" if name in required else f"`{default}`" if is_shown else ""
        rows.append([f"`{name}`", _type(key), written, meaning])
    yield from _table([head, "type", "default", "meaning"], rows)


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


def _axis(axis: Axis) -> Iterator[str]:
    yield from ("", f"### `{axis.name}`", "")
    if axis.integer_argument:
        yield f"{_sentence(axis.doc)} An integer from 1. Default: {axis.default}."
        return
    integers = ""
    if axis.takes_integers:
        integers = f"An integer from 1 ({axis.integer_unit}), or a name. "
    yield f"{_sentence(axis.doc)} {integers}Default: `{axis.default}`."
    yield ""
    yield from _table(["value", "meaning", "requires", "results"], _values(axis))
    if axis.families:
        yield from _families(axis)


def _values(axis: Axis) -> Iterator[list[str]]:
    """A row for each named value, and one for the values that a pattern describes."""
    for name, variant in axis.variants.items():
        needs = ", ".join(map(_requirement, variant.requires))
        yield [f"`{name}`", variant.doc, needs, variant.numerical_effect]
    if axis.pattern is not None:
        yield [f"`{axis.pattern.form}`", axis.pattern.doc, "", ""]


def _families(axis: Axis) -> Iterator[str]:
    """The techniques of an axis that take parameters."""
    example = next(iter(axis.families))
    yield ""
    yield (
        f"These take parameters, as a mapping `{{{example}: {{name: value}}}}` or as the text "
        f"`{example}(name=value)`. The parameters are those of the library's class."
    )
    yield ""
    rows = []
    for name, family in axis.families.items():
        class_name = family.config_class.partition(":")[2]
        rows.append([f"`{name}`", family.doc, f"`{class_name}`"])
    yield from _table(["value", "meaning", "parameters of"], rows)


def _requirement(requirement: str) -> str:
    for prefix, words in _REQUIREMENT_PREFIXES.items():
        if requirement.startswith(prefix):
            return words.format(requirement.removeprefix(prefix))
    return _REQUIREMENTS[requirement]


def _searches(definitions: dict[str, Any]) -> Iterator[str]:
    yield from ("", "## Searches", "")
    yield (
        f"`search` is the name of a kind, or a mapping of `kind` and its options. "
        f"Default: `{DEFAULT_SEARCH.kind}`."
    )
    for kind, search in SEARCH_KINDS.items():
        definition = definitions[search.__name__]
        yield from ("", f"### `search: {kind}`", "", _one_line(definition["description"]))
        options = {**definition["properties"]}
        del options["kind"]
        if options:
            yield ""
            yield from _keys("option", options)


def _loggers(definitions: dict[str, Any]) -> Iterator[str]:
    yield from ("", "## Loggers", "")
    yield (
        "`loggers` is a list of names, or a mapping of names to arguments. Credentials come from "
        "the environment, as each package reads them."
    )
    for name, logger in LOGGERS.items():
        definition = definitions[logger.__name__]
        doc = _one_line(definition["description"])
        yield from ("", f"### `{name}`", "", f"{_sentence(doc)} Package: `{logger.package}`.")
        arguments = definition["properties"]
        if arguments:
            rows = [[f"`{key}`", value["description"]] for key, value in arguments.items()]
            yield ""
            yield from _table(["argument", "meaning"], rows)


def _sentence(doc: str) -> str:
    """A one-line doc as a sentence."""
    text = doc.rstrip(":.")
    return f"{text[:1].upper()}{text[1:]}."


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield line(head)
    yield line(["---"] * len(head))
    for cells in rows:
        yield line(cell.replace("|", "\\|") for cell in cells)


if __name__ == "__main__":
    print(render(), end="")
