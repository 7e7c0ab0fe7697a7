"""Choices of the command line in place of a file's: ``--set AXIS=VALUE``."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from orchestrator.planning.choices.axes import read_grids
from orchestrator.planning.document import Document, read_text
from orchestrator.planning.problems import ConfigError


def with_choices(document: Document, texts: Sequence[str]) -> Document:
    """The document as if it had choices such as "precision=bf16": wherever it names the axis, and
    in its baseline; a list of values is in its axes. Raises ConfigError for a wrong choice."""
    if not texts:
        return document
    pairs = (text.partition("=") for text in texts)
    given = read_text(
        "--set", "\n".join(["axes:", *(f"  {at}: {value}" for at, _, value in pairs)])
    )
    _, _, problems = read_grids(given)
    if problems:
        raise ConfigError(problems)
    chosen, content = given.value["axes"], dict(document.value)
    lists = {axis: values for axis, values in chosen.items() if isinstance(values, list)}
    singles = {axis: value for axis, value in chosen.items() if axis not in lists}
    for key, added in (("axes", lists), ("baseline", singles)):
        if isinstance(content.get(key, {}), dict):
            content[key] = {**_named(content.get(key, {}), chosen), **added}
    if isinstance(subsets := content.get("subsets"), dict):
        content["subsets"] = {
            name: {**subset, "axes": _named(subset.get("axes"), chosen)}
            if isinstance(subset, dict)
            else subset
            for name, subset in subsets.items()
        }
    if isinstance(trials := content.get("trials"), list):
        content["trials"] = [_named(trial, chosen) for trial in trials]
    return replace(document, value=content)


def _named(section: Any, chosen: Mapping[str, Any]) -> Any:
    """A section of the file, with the chosen values of the axes that it names."""
    if not isinstance(section, dict):
        return section
    return {axis: chosen.get(axis, value) for axis, value in section.items()}
