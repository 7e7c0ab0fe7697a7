"""The dialects, and which of them a file is written in."""

import functools
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from orchestrator.planning.dialects.shell import Variables, commands, is_unset, written_files
from orchestrator.planning.dialects.trainers.tables import COMMAND, Dialect, Verdict, dialect
from orchestrator.planning.document import Loader, read_document
from orchestrator.planning.problems import ConfigError

_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?")
_CODE = re.compile(r"^[ \t]*(```+|~~~+).*\n([\s\S]*?)^[ \t]*\1", re.MULTILINE)
"""Commands inside a text of Markdown."""
_LAUNCHERS = ("torch.", "accelerate.", "deepspeed.")
KEYS = (".yaml", ".yml", ".json")
"""Ends of the names of files that hold keys, not a command."""
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
        is_text = error.problems[0].line > 0
        text = path.read_text(encoding="utf-8") if is_text else ""
        found = _repeating(text, error)
        if not found and (path.suffix in KEYS or not is_text):
            raise UnreadableFileError(str(error)) from None
        code = "" if path.suffix == ".sh" else "\n".join(one[1] for one in _CODE.findall(text))
        found = found or _of_command(code) or _of_command(text)
    if not found and path.suffix == ".sh":  # a command that ends with a colon reads as a key
        found = _of_command(path.read_text(encoding="utf-8"))
    if not found:
        if path.suffix in (".py", ".ipynb"):
            how = "write its arguments with TrainingArguments.to_json_string(), and give that file"
            raise UnreadableFileError(f"{path}: Python code is not run here; {how}")
        names = ", ".join(known.name for known in dialects())
        raise UnreadableFileError(f"{path}: in none of the known dialects: {names}")
    return found


def _repeating(text: str, error: ConfigError) -> list[Source]:
    """What a file with repeated keys says, if it has no other problem and its trainer reads it."""
    keys = [problem.key for problem in error.problems if problem.message.startswith("given twice")]
    if len(keys) < len(error.problems):
        return []
    found = _of_keys(Loader(text).get_single_data())
    refused = [known for known, _ in found if known.refuses_repeated_keys]
    note = {"given more than once": ", ".join(keys)}
    return [] if refused else [(dialect("of_a_file"), note), *found]


def _of_keys(content: Mapping[str, Any]) -> list[Source]:
    found = (known for known in dialects() if not content.keys().isdisjoint(known.marks))
    return [(known, content) for known in found][:1]


def _of_command(text: str) -> list[Source]:
    """The first command that trains, with what is to be said of the others."""
    variables: Variables = {}
    read = ((_training(words, variables), changed) for words, changed in commands(text, variables))
    found = [(trains, changed) for trains, changed in read if trains]
    found = [one for one in found if _is_possible(*one[0][-1])] or found[:1]
    if not found:
        return []
    trains, changed = found[0]
    names = ", ".join(dict.fromkeys(changed))
    notes = {"variables set more than once": names} if names else {}
    others = {"commands that train": len(found)} if len(found) > 1 else {}
    inside = _inside(trains, written_files(text, variables))
    return [(dialect("of_a_file"), {**notes, **others}), *inside, *trains]


def _inside(trains: list[Source], files: Mapping[str, str]) -> list[Source]:
    """What the files say that a script writes before a command reads them, which then are read."""
    found: list[Source] = []
    known, options = trains[-1]
    read = {}
    for key, name in options.items():
        # An option of several words has a list of them.
        if known.rule(key).is_file and isinstance(name, str) and name in files:
            with suppress(yaml.YAMLError, AttributeError):
                found += _of_keys(Loader(files[name]).get_single_data())
                read[key] = ["what the script writes"]
    trains[-1] = known, {**options, **read}
    return found


def _is_possible(known: Dialect, options: Mapping[str, Any]) -> bool:
    """Whether a command's own name says that it trains."""
    reading = known.rule(COMMAND).read(options.get(COMMAND))
    return reading.verdict is not Verdict.IMPOSSIBLE


def _training(words: list[str], variables: Variables) -> list[Source]:
    """What a command says if it trains."""
    called, launch, options = _parts(words)
    for known in dialects():
        found = _call(known, called)
        has_marks = not options.keys().isdisjoint(known.marks)
        is_whole = options and (has_marks or known.name != "TrainingArguments")
        is_renamed = known.any_script and has_marks and " ".join(called).endswith(".py")
        if (found and is_whole) or is_renamed:
            named = next(filter(None, found.groups()), None) if found else None
            trains = known, {**({COMMAND: named} if named else {}), **options}
            if processes := variables.get("NPROC_PER_NODE"):
                launch["NPROC_PER_NODE"] = _value(processes[-1])
            name = "accelerate" if re.search(r"\baccelerate\b", " ".join(called)) else ""
            launcher = replace(dialect("launcher"), name=name)
            return [(launcher, launch), trains] if launch else [trains]
    return []


def _call(known: Dialect, words: Sequence[str]) -> re.Match[str] | None:
    """The words of a command that call a dialect's trainer."""
    return re.search(known.command, " ".join(words)) if known.command else None


def _parts(words: list[str]) -> tuple[list[str], dict[str, Any], dict[str, Any]]:
    """What a command calls, the options of its launcher, which stand before the script, module or
    other call (``accelerate launch --x 1 train.py``), and its own."""
    for at, word in enumerate(words[:-1]):
        if word == "-m" and not words[at + 1].startswith(_LAUNCHERS):
            words[at + 1] = words[at + 1].replace(".", "/") + ".py"
    flags = (index for index, word in enumerate(words) if word.startswith("--"))
    first = next(flags, len(words))
    start = begin = first
    if not any(_call(known, words[:first]) for known in dialects()):
        ends = (at + 1 for at in range(len(words)) if _length(words[first : at + 1]))
        begin = next(ends, first)
        start = begin - _length(words[first:begin])
    launch = [word for word in words[first:start] if word != "-m"]
    return words[:begin], _options(launch), _options([*words[:first], *words[begin:]])


def _length(words: Sequence[str]) -> int:
    """How many of these words, at their end, call a trainer."""
    calls = filter(None, (_call(known, words) for known in dialects()))
    starts = (found.start() for found in calls if found.end() == len(" ".join(words)))
    start = min(starts, default=None)
    return 0 if start is None else len(" ".join(words)[start:].split())


def _options(words: Sequence[str]) -> dict[str, Any]:
    """``--key value``, ``--key=value``, a switch (true), a list of values, and a file before."""
    options: dict[str, Any] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name, has_value, value = word[2:].partition("=")
            name = name.replace("-", "_")
            options[name] = _value(value) if has_value else True
        elif not name and word.endswith(KEYS):
            options.setdefault("config", word)
        elif not name and (own := re.match(r"([a-z]\w*)=", word)):
            options[own[1]] = _value(word[own.end() :])  # of a file before
        elif name and is_unset(word) and (options[name] is not True or word in ("$@", "$*")):
            options[word] = word  # further options, which are not in the file
        elif name:
            earlier = [] if options[name] is True else options[name]
            values = [*(earlier if isinstance(earlier, list) else [earlier]), _value(word)]
            options[name] = values if len(values) > 1 else values[0]
    return options


def _value(word: str) -> Any:
    if _NUMBER.fullmatch(word):
        return float(word) if re.search(r"[.eE]", word) else int(word)
    if word.startswith(("{", "[")) or word.lower() in ("true", "false", "none", "null"):
        try:
            return None if word.lower() == "none" else yaml.safe_load(word)
        except yaml.YAMLError:
            return word
    return word
