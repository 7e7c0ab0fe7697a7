"""What the config model is made of: sections, and types of values with more than one notation."""

import re
from collections.abc import Callable, Iterator
from typing import Annotated, Any, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from orchestrator.storage.location import Location, location
from orchestrator.units import DURATION_PATTERN, SIZE_PATTERN, duration_seconds, size_bytes


class Section(BaseModel):
    """A mapping of the file. The docstring below a key is its meaning, for editors and the docs."""

    # Strict: the text "8" is not the number 8. A quoted number is reported, never guessed about.
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


def keys_of(section: type[BaseModel]) -> dict[str, Any]:
    """Key -> its type."""
    return {field.alias or name: field.annotation for name, field in section.model_fields.items()}


def sections_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The sections that a value of this type can be or hold."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from sections_in(argument)


def _integer_or(word: str, value: object) -> int:
    # To Python, True is the integer 1.
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f'must be an integer from 1, or "{word}"')
    return value


def _steps(value: object) -> int | None:
    return None if value == "epoch" else _integer_or("epoch", value)


def _cpus(value: object) -> int:
    return 0 if value == "auto" else _integer_or("auto", value)


def _host_memory(value: object) -> int:
    return 0 if value == "auto" else size_bytes(value)


def _mapping_or_path(value: object) -> object:
    if not isinstance(value, (dict, str)):
        raise ValueError("must be a mapping, or the path of a JSON or YAML file")
    return value


def _section_or_switch(value: object) -> object:
    if not isinstance(value, (dict, bool)):
        raise ValueError("must be true, false or a mapping")
    return ({} if value else None) if isinstance(value, bool) else value


def _is_switch_too(schema: dict[str, Any]) -> None:
    schema["anyOf"] = [{"type": "boolean"}, schema["anyOf"][0]]
    schema["default"] = False


def _check_name(value: str) -> str:
    if re.search(r"[/\\]", value) or value in (".", ".."):
        raise ValueError("is a name, not a path; to choose the run folder, set output")
    # The name of a folder may have 255 bytes.
    if not value.strip() or not value.isprintable() or len(value) > 100:
        raise ValueError("must be 1 to 100 printable characters")
    return value


def _output(value: object) -> Location | None:
    if value is not None and not isinstance(value, str):
        raise ValueError("must be text")
    return location(value) if value else None


def _parsed(
    parse: Callable[[object], Any], *schemas: dict[str, Any]
) -> tuple[BeforeValidator, WithJsonSchema]:
    return BeforeValidator(parse), WithJsonSchema({"anyOf": list(schemas)})


_INTEGER: dict[str, Any] = {"type": "integer", "minimum": 1}
_BYTES: dict[str, Any] = {"type": "number", "minimum": 10**6}
"""A size without a unit. A smaller number probably lacks its unit by mistake."""
_AUTO: dict[str, Any] = {"const": "auto"}
_SIZE = {"type": "string", "pattern": f"^{SIZE_PATTERN}$", "examples": ["16GiB", "24GB", "24G"]}
_DURATION = {"type": "string", "pattern": f"^{DURATION_PATTERN}$", "examples": ["300s", "5m"]}

Size = Annotated[int, *_parsed(size_bytes, _BYTES, _SIZE)]
"""A size in bytes, written as a number or as text such as 16GiB."""
Duration = Annotated[float, *_parsed(duration_seconds, {"type": "number"}, _DURATION)]
"""A time in seconds, written as a number or as text such as 5m."""
Steps = Annotated[int | None, *_parsed(_steps, _INTEGER, {"const": "epoch"})]
"""A number of steps; None, written "epoch", stands for one epoch."""
Cpus = Annotated[int, *_parsed(_cpus, _INTEGER, _AUTO)]
"""A number of CPUs; 0 stands for "auto"."""
HostMemory = Annotated[int, *_parsed(_host_memory, _BYTES, _SIZE, _AUTO)]
"""A size in bytes; 0 stands for "auto"."""
MappingOrPath = Annotated[
    dict[str, Any] | str, *_parsed(_mapping_or_path, {"type": "object"}, {"type": "string"})
]
SWITCH = (BeforeValidator(_section_or_switch), Field(json_schema_extra=_is_switch_too))
"""Of a type ``SECTION | None``: true stands for the section's defaults, false for None."""
Texts = Annotated[tuple[str, ...], Field(strict=False)]
"""A list of texts. It is not strict, because YAML has lists and no tuples."""
RunName = Annotated[str, AfterValidator(_check_name)]
"""A name that can be the name of a folder."""
Output = Annotated[Location | None, *_parsed(_output, {"type": "string"}, {"type": "null"})]
"""A folder or a URI."""
