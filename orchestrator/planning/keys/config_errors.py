"""A file's content typed by the config model, or what is wrong with it in words."""

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from jobs.techniques import AXES
from orchestrator.planning.keys.config_model import ConfigFile
from orchestrator.planning.keys.config_types import keys_of, sections_in
from orchestrator.planning.keys.search_options import SEARCH_KINDS
from orchestrator.planning.problems import KeyPath, KeyProblem, advice, described, named_value

_DISABLE_PLUGINS = "PYDANTIC_DISABLE_PLUGINS"
_EXPECTED = {
    "string_type": "text",
    "bool_type": "true or false",
    "int_type": "an integer",
    "float_type": "a number",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
"""pydantic's kind of error -> what the key expects."""
_QUOTABLE = ("int_type", "float_type", "bool_type")
_BOUNDS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
    "less_than": ("below", "lt"),
    "less_than_equal": ("at most", "le"),
}
"""pydantic's kind of error -> its words, and its bound's name in the error's context."""


def typed(value: Mapping[str, Any]) -> ConfigFile | list[KeyProblem]:
    """The typed content of the file, or each place that is wrong in it, with the reason."""
    try:
        with _without_plugins():
            return ConfigFile.model_validate(value)
    except ValidationError as error:
        details = map(dict, error.errors(include_url=False))
        return [(_path(detail, value), _message(detail)) for detail in details]


def _path(detail: Mapping[str, Any], value: Mapping[str, Any]) -> KeyPath:
    path = tuple(detail["loc"])
    if path[0] != "search":
        return path
    if detail["type"] == "union_tag_invalid" and isinstance(value["search"], dict):
        return ("search", "kind")
    # pydantic adds the kind of search to the path.
    return (path[0], *path[2:])


@contextlib.contextmanager
def _without_plugins() -> Iterator[None]:
    """Keep pydantic from asking every installed package for plugins, which takes tens of ms. It
    asks when a model is first used. No plugin could change what a sweep's file means."""
    before = os.environ.get(_DISABLE_PLUGINS)
    os.environ[_DISABLE_PLUGINS] = "__all__"
    try:
        yield
    finally:
        # The variable must not reach the trials, whose libraries use pydantic, too.
        os.environ.pop(_DISABLE_PLUGINS, None)
        if before is not None:
            os.environ[_DISABLE_PLUGINS] = before


def _message(detail: Mapping[str, Any]) -> str:
    kind = detail["type"]
    if kind == "extra_forbidden":
        return _unknown_key(detail["loc"])
    if kind == "missing":
        return "is required"
    return _value_message(kind, detail["input"], detail) or str(detail["msg"])


def _unknown_key(path: KeyPath) -> str:
    *parents, key = path
    section: type[BaseModel] = ConfigFile
    if parents and parents[0] == "search":
        section = SEARCH_KINDS[str(parents[1])]
        # An option of another kind of search is not a misspelling.
        owners = [kind for kind, search in SEARCH_KINDS.items() if key in keys_of(search)]
        if owners:
            return f"only search: {{kind: {' or '.join(owners)}}} has this"
    else:
        # Walk down the models as pydantic did; the name of a subset is not a key of a model.
        for parent in parents:
            section = next(sections_in(keys_of(section).get(str(parent))), section)
    keys = list(keys_of(section))
    if not parents and key in AXES:
        return "is an axis: write it under axes or baseline"
    if not keys:
        return "unknown key; no key is valid here"
    return f"unknown key; {advice(key, keys)}"


_TASKS_OF_PIPELINES = {
    "automatic-speech-recognition": "speech-seq2seq, or speech-ctc for models like wav2vec2,",
    "fill-mask": "masked-lm",
    "ner": "token-classification",
    "summarization": "seq2seq-lm",
    "text-classification": "sequence-classification",
    "text-generation": "causal-lm",
    "text2text-generation": "seq2seq-lm",
    "translation": "seq2seq-lm",
}
"""What the pipelines of transformers call a task."""


def _value_message(kind: str, value: Any, detail: Mapping[str, Any]) -> str:
    context = detail.get("ctx", {})
    if kind == "literal_error":
        # pydantic lists the choices as 'a', 'b' or 'c'.
        choices = re.findall(r"'([^']*)'", context["expected"])
        ours = _TASKS_OF_PIPELINES.get(str(value))
        if ours and detail["loc"] == ("model", "task"):
            return f"{named_value(value)} is called {ours} here"
        return f"{named_value(value)} is not known; {advice(value, choices)}"
    if kind == "union_tag_invalid":
        name = value["kind"]
        return f"{named_value(name)} is not known; {advice(name, list(SEARCH_KINDS))}"
    if kind in _EXPECTED:
        return f"must be {_EXPECTED[kind]}, not {described(value)}{_quotes_hint(kind, value)}"
    if kind in _BOUNDS:
        words, name = _BOUNDS[kind]
        bound = context[name]
        limit = f"{bound:g}" if isinstance(bound, float) else bound
        return f"must be {words} {limit}, not {described(value)}"
    if kind == "value_error":
        # One of our own checks; the value follows if the check says what it must be.
        reason = str(context["error"])
        return f"{reason}, not {described(value)}" if reason.startswith("must be") else reason
    return ""


def _quotes_hint(kind: str, value: Any) -> str:
    is_unquoted = isinstance(value, str) and re.fullmatch(r"[-+\d.]+|true|false", value)
    return "; write it without quotes" if kind in _QUOTABLE and is_unquoted else ""
