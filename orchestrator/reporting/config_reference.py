"""The configuration reference: ``python -m orchestrator.reporting.config_reference``."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

from jobs.techniques import AXES, Axis
from orchestrator.planning.axes import EFFECTIVE_BATCH
from orchestrator.planning.loggers import LOGGERS
from orchestrator.planning.problems import dotted
from orchestrator.planning.renamed_keys import RENAMED_KEYS
from orchestrator.planning.schema_models import Section, SweepSection
from orchestrator.planning.search_kinds import DEFAULT_KIND, SEARCH_KINDS, SearchOption
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
_REQUIREMENTS = {
    "cuda": "a CUDA GPU",
    "bf16": "a GPU with bf16, or a CPU",
    "no_attention_dropout": "a model without attention dropout",
    "experts": "a mixture of experts",
    "text_task": "a model of text",
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
    lines = [INTRODUCTION]
    lines += _sections()
    lines += ["", "## Axes", "", AXES_INTRODUCTION]
    for axis in AXES.values():
        lines += _axis(axis)
    lines += _effective_batch()
    lines += _searches()
    lines += _loggers()
    lines += _renamed_keys()
    return "\n".join(lines) + "\n"


def _sections() -> Iterator[str]:
    """The top level, then every section with the path that leads to it."""
    # Pydantic gives every section's schema under its class's name.
    schema = SweepSection.model_json_schema()
    yield from _section("Top level", SweepSection, schema, schema["$defs"])
    for path, section in _nested_sections(SweepSection):
        section_schema = schema["$defs"][section.__name__]
        yield from _section(f"`{path}`", section, section_schema, schema["$defs"])


def _nested_sections(section: type[Section], path: str = "") -> Iterator[tuple[str, type[Section]]]:
    for name, field in section.model_fields.items():
        nested_path = f"{path}{name}"
        for nested in _sections_in(field.annotation):
            yield nested_path, nested
            yield from _nested_sections(nested, f"{nested_path}.")


def _sections_in(annotation: Any) -> Iterator[type[Section]]:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    for argument in get_args(annotation):
        yield from _sections_in(argument)


def _section(
    title: str, section: type[Section], schema: dict[str, Any], definitions: dict[str, Any]
) -> Iterator[str]:
    yield from ("", f"## {title}", "", _one_line(schema["description"]), "")
    required = schema.get("required", [])
    rows = []
    for name in section.model_fields:
        field = schema["properties"][name]
        meaning = _one_line(field.get("description", ""))
        rows.append([f"`{name}`", _type(field), _default(field, name in required), meaning])
    yield from _table(["key", "type", "default", "meaning"], rows)


def _type(schema: dict[str, Any]) -> str:
    """A JSON schema in words: ``integer from 1 or `epoch` ``."""
    if "$ref" in schema:
        return "section"
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(map(_code, schema["enum"]))
    if "anyOf" in schema:
        # A key that may be left out is described by its default.
        kinds = [_type(part) for part in schema["anyOf"] if part.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if schema["type"] == "array":
        return _list_type(schema["items"])
    return f"{_scalar_type(schema)}{_bounds(schema)}"


def _list_type(items: dict[str, Any]) -> str:
    kind = _type(items)
    if kind in ("mapping", "text"):
        return f"list of {kind}s"
    return f"list of {kind}"


def _scalar_type(schema: dict[str, Any]) -> str:
    if "examples" in schema:
        return f"text such as `{schema['examples'][0]}`"
    name: str = schema["type"]
    return _SCALARS.get(name, name)


def _bounds(schema: dict[str, Any]) -> str:
    parts = []
    if "minimum" in schema:
        parts.append(f" from {schema['minimum']:g}")
    if "maximum" in schema:
        parts.append(f" to {schema['maximum']:g}")
    if "exclusiveMaximum" in schema:
        parts.append(f" to below {schema['exclusiveMaximum']:g}")
    return "".join(parts)


def _default(schema: dict[str, Any], is_required: bool) -> str:
    if is_required:
        return "required"
    default = schema.get("default")
    if default is None or isinstance(default, (dict, list)):
        return ""
    if isinstance(default, bool):
        return _code(str(default).lower())
    return _code(default)


def _code(value: object) -> str:
    return f"`{value}`"


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
    yield from _families(axis)


def _values(axis: Axis) -> list[list[str]]:
    """A row for each named value, and one for the values that a pattern describes."""
    rows = []
    for name, variant in axis.variants.items():
        needs = ", ".join(map(_requirement, variant.requires))
        rows.append([f"`{name}`", variant.doc, needs, variant.numerical_effect])
    if axis.pattern is not None:
        rows.append([f"`{axis.pattern.form}`", axis.pattern.doc, "", ""])
    return rows


def _families(axis: Axis) -> Iterator[str]:
    """The techniques of an axis that take parameters; nothing if it has none."""
    if not axis.families:
        return
    rows = []
    for name, family in axis.families.items():
        class_name = family.config_class.partition(":")[2]
        rows.append([f"`{name}`", family.doc, f"`{class_name}`"])
    example = next(iter(axis.families))
    yield ""
    yield (
        f"These take parameters, as a mapping `{{{example}: {{name: value}}}}` or as the text "
        f"`{example}(name=value)`. The parameters are those of the library's class."
    )
    yield ""
    yield from _table(["value", "meaning", "parameters of"], rows)


def _effective_batch() -> Iterator[str]:
    yield from ("", f"### `{EFFECTIVE_BATCH}`", "")
    yield (
        "Samples per optimizer step, held fixed while the micro-batch varies: the accumulation "
        "follows. An integer from 1. Not together with `accumulation`."
    )


def _requirement(requirement: str) -> str:
    for prefix, words in _REQUIREMENT_PREFIXES.items():
        if requirement.startswith(prefix):
            return words.format(requirement.removeprefix(prefix))
    return _REQUIREMENTS[requirement]


def _searches() -> Iterator[str]:
    yield from ("", "## Searches", "")
    yield (
        f"`search` is the name of a kind, or a mapping of `kind` and its options. "
        f"Default: `{DEFAULT_KIND}`."
    )
    for kind, row in SEARCH_KINDS.items():
        yield from ("", f"### `search: {kind}`", "", _sentence(row.doc))
        if row.options:
            rows = list(itertools.starmap(_option, row.options.items()))
            yield ""
            yield from _table(["option", "type", "default", "meaning"], rows)


def _option(name: str, option: SearchOption) -> list[str]:
    bounds: dict[str, Any] = {"minimum": option.minimum}
    if option.maximum is not None:
        bounds["maximum"] = option.maximum
    if option.below is not None:
        bounds["exclusiveMaximum"] = option.below
    if option.type is bool:
        return [f"`{name}`", _SCALARS["boolean"], f"`{str(option.default).lower()}`", option.doc]
    words = "number"
    if option.type is int:
        words = "integer"
    return [f"`{name}`", f"{words}{_bounds(bounds)}", f"`{option.default}`", option.doc]


def _loggers() -> Iterator[str]:
    yield from ("", "## Loggers", "")
    yield (
        "`loggers` is a list of names, or a mapping of names to arguments. Credentials come from "
        "the environment, as each package reads them."
    )
    for name, row in LOGGERS.items():
        yield from ("", f"### `{name}`", "", f"{_sentence(row.doc)} Package: `{row.package}`.")
        if row.arguments:
            rows = [[_code(argument), doc] for argument, doc in row.arguments.items()]
            yield ""
            yield from _table(["argument", "meaning"], rows)


def _renamed_keys() -> Iterator[str]:
    yield from ("", "## Renamed keys", "")
    yield from ("Old keys still work in this version, with a note on stderr.", "")
    rows = []
    for old, new in RENAMED_KEYS.items():
        rows.append([_code(dotted(old)), _code(dotted(new))])
    yield from _table(["old key", "new key"], rows)


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
