"""The dialects, and which of them a file is written in."""

import functools
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from orchestrator.planning.dialects.trainers.tables import Dialect, dialect
from orchestrator.planning.document import MAX_BYTES, read_document
from orchestrator.planning.problems import ConfigError

_VARIABLE = re.compile(r"\$\{?(\w+)(?::?-([^}]*))?\}?")
_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?([eE][-+]?\d+)?")
_QUOTIENT = re.compile(r"\$\((?:expr|\() *(\w+) */ *(\w+) *\)?\)")
"""How a script divides a batch among GPUs."""
_LIST = re.compile(r"^[ \t]*(\w+)=\(([^()]*)\)", re.MULTILINE)
"""A list of options under a name, over several lines."""
_LAUNCHERS = {"nproc_per_node": "num_processes", "num_gpus": "num_processes"}
"""Option of torchrun or DeepSpeed -> accelerate's."""
_OPERATORS = (";", "&&", "||", "|", "&")
# In the order in which a file's keys are compared with their marks.
_TABLES = """
axolotl llama_factory_v1 llama_factory deepspeed accelerate config_json ms_swift trl
training_arguments
"""


@functools.cache
def dialects() -> tuple[Dialect, ...]:
    return tuple(map(dialect, _TABLES.split()))


class UnreadableFileError(ValueError):
    """A file is in no known dialect; the text says why."""


Source = tuple[Dialect, Mapping[str, Any]]
"""A dialect, and the keys that are written in it."""


def read_file(path: Path) -> list[Source]:
    """What a file says, of a command its launcher's options first. Raises UnreadableFileError."""
    try:
        found = _of_keys(read_document(path).value)
    except ConfigError as error:
        if path.suffix in (".yaml", ".yml", ".json"):
            raise UnreadableFileError(str(error)) from None
        found = _of_command(_script(path))
    if not found:
        if path.suffix in (".py", ".ipynb"):
            how = "write its arguments with TrainingArguments.to_json_string(), and give that file"
            raise UnreadableFileError(f"{path}: Python code is not run here; {how}")
        names = ", ".join(known.name for known in dialects())
        raise UnreadableFileError(f"{path}: in none of the known dialects: {names}")
    return found


def _script(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            # A device has no end.
            return file.read(MAX_BYTES)
    except UnicodeDecodeError:
        kinds = "YAML or JSON, or a script with the command that trains"
        raise UnreadableFileError(f"{path}: not UTF-8 text; give {kinds}") from None
    except OSError as error:
        raise UnreadableFileError(f"{path}: {error.strerror or error}") from None


def _of_keys(content: Mapping[str, Any]) -> list[Source]:
    found = (known for known in dialects() if not content.keys().isdisjoint(known.marks))
    return [(known, content) for known in found][:1]


def _of_command(text: str) -> list[Source]:
    for words, options, launch in _commands(text):
        called = " ".join(words)
        for known in dialects():
            found = known.command and re.search(known.command, called)
            has_marks = not options.keys().isdisjoint(known.marks)
            is_whole = options and (has_marks or known.name != "TrainingArguments")
            is_renamed = known.any_script and has_marks and called.endswith(".py")
            if (found and is_whole) or is_renamed:
                named = next(filter(None, found.groups()), None) if found else None
                trains = known, {**({"command": named} if named else {}), **options}
                launcher = next(own for own in dialects() if own.name == "accelerate")
                return [(launcher, launch), trains] if launch else [trains]
    return []


def _commands(text: str) -> Iterator[tuple[list[str], Mapping[str, Any], Mapping[str, Any]]]:
    """Each command of a script: its words before the first option, its options, and those of what
    launches it, as accelerate names them. ``--key value``, ``--key=value``, a switch (true) and a
    list of values are read; variables that the script sets are replaced, and nothing is run."""
    variables: dict[str, str] = {}
    for name, options in _LIST.findall(text):
        options = re.sub(r"\s+(#.*)?", " ", options).replace("\\", r"\\")
        text = re.sub(rf'"?\$\{{{name}\[[@*]\]\}}"?', options, text)
    for line in re.sub(r"\\\r?\n", " ", _LIST.sub("", text)).splitlines():
        line = _QUOTIENT.sub(
            lambda found: _quotient(found[1], found[2], variables) or found[0],
            _replaced(line, variables),
        )
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            continue
        words = [word for word in words if word not in (*_OPERATORS, "export")]
        while words and re.match(r"\w+=", words[0]):
            name, _, value = words.pop(0).partition("=")
            variables[name] = value
        if any(word.startswith("--") for word in words):
            called, launch, options = _parts(words)
            yield called, options, _as_accelerate(launch, variables)


def _as_accelerate(launch: Mapping[str, Any], variables: Mapping[str, str]) -> dict[str, Any]:
    """A launcher's options, and the variable that ms-swift reads, as accelerate names them."""
    options = {_LAUNCHERS.get(name, name): value for name, value in launch.items()}
    if processes := variables.get("NPROC_PER_NODE"):
        options["num_processes"] = _value(processes)
    return options


def _quotient(total: str, parts: str, variables: Mapping[str, str]) -> str:
    """The whole quotient of two numbers or names of variables; empty if one is neither."""
    numbers = [variables.get(word, word) for word in (total, parts)]
    if not all(map(str.isdecimal, numbers)):
        return ""
    return str(int(numbers[0]) // max(1, int(numbers[1])))


def _parts(words: list[str]) -> tuple[list[str], dict[str, Any], dict[str, Any]]:
    """What a command calls, the options of its launcher, which stand before the script or the
    module (``accelerate launch --x 1 train.py``), and its own."""
    modules = [at + 1 for at, word in enumerate(words[:-1]) if word == "-m"]
    for at in modules:
        words[at] = words[at].replace(".", "/") + ".py"
    first = next(index for index, word in enumerate(words) if word.startswith("--"))
    scripts = [index for index, word in enumerate(words) if word.endswith(".py")]
    begin = max([first, *(index + 1 for index in scripts)])
    launch = [word for word in words[first : begin - 1] if word != "-m"]
    return words[:begin], _options(launch), _options(words[begin:])


def _options(words: Sequence[str]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name, has_value, value = word[2:].partition("=")
            name = name.replace("-", "_")
            options[name] = _value(value) if has_value else True
        elif name:
            earlier = options[name]
            options[name] = _value(word) if earlier is True else [*_listed(earlier), _value(word)]
    return options


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _value(word: str) -> Any:
    if _NUMBER.fullmatch(word):
        return float(word) if re.search(r"[.eE]", word) else int(word)
    if word.startswith(("{", "[")) or word.lower() in ("true", "false", "none", "null"):
        try:
            return None if word.lower() == "none" else yaml.safe_load(word)
        except yaml.YAMLError:
            return word
    return word


def _replaced(word: str, variables: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda found: variables.get(found[1], found[2] or found[0]), word)
